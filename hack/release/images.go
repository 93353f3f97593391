package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/checksums"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/programs"
)

// addImages adds an archive with the images that an installation needs to a release, and makes the
// archive for air-gapped sites anew. further is a file with more images, such as those of
// Kubernetes, which images.txt has afterwards; it may be blank. A release whose images can't all be
// copied stays as it is.
func (b *builder) addImages(ctx context.Context, folder, mirror, further string) error {
	r, err := open(folder)
	if err != nil {
		return err
	}
	if err := checksums.Check(folder); err != nil {
		return fmt.Errorf("%s is not as it was built, so no images were added: %w", folder, err)
	}
	at, err := programs.CommitTime(ctx, b.root)
	if err != nil {
		return err
	}
	list, err := os.ReadFile(filepath.Join(folder, imageList))
	if err != nil {
		return err
	}
	if further != "" {
		more, err := os.ReadFile(further)
		if err != nil {
			return fmt.Errorf("reading the list of further images: %w", err)
		}
		list = append(list, missing(more, list)...)
	}
	own, err := r.ownImage()
	if err != nil {
		return err
	}
	names := others(list, own)
	if err := image.Copy(ctx, r.images(), image.Copies{Names: names, Architectures: architectures(), Mirror: mirror, Time: at, Say: say}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, imageList), list, 0o644); err != nil {
		return err
	}
	return finish(r, at)
}

// missing returns the lines of a list that another one lacks.
func missing(more, list []byte) []byte {
	var text strings.Builder
	has := strings.Split(string(list), "\n")
	for line := range strings.Lines(string(more)) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(has, line) {
			text.WriteString(line + "\n")
		}
	}
	return []byte(text.String())
}

// ownImage returns the name of the release's own image.
func (r release) ownImage() (string, error) {
	img, err := image.Open(r.image())
	if err != nil {
		return "", err
	}
	return img.Name, img.Close()
}

// others returns the images of a list without the release's own, which has an archive of its own.
func others(list []byte, own string) []string {
	var names []string
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		if line != "" && line != own && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names
}

// openImages unpacks the archive of images. It is nil if the release has none.
func (r release) openImages() (*image.Set, error) {
	if _, err := os.Stat(r.images()); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return image.OpenSet(r.images())
}

// verifyImages compares the archive of images with images.txt. own is the release's own image.
func (r release) verifyImages(own string) (err error) {
	set, err := r.openImages()
	if err != nil || set == nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	list, err := os.ReadFile(filepath.Join(r.folder, imageList))
	if err != nil {
		return err
	}
	if err := set.Check(others(list, own)); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(r.images()), err)
	}
	return nil
}

// pushImages pushes the images of the archive below a registry.
func (r release) pushImages(ctx context.Context, registry string) (err error) {
	set, err := r.openImages()
	if err != nil || set == nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	return set.Push(ctx, registry, say)
}
