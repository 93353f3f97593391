package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Set is an archive of Copy that was unpacked. Close removes it.
type Set struct{ unpacked }

// OpenSet unpacks an archive of Copy.
func OpenSet(file string) (*Set, error) {
	u, err := unpack(file)
	if err != nil {
		return nil, err
	}
	return &Set{u}, nil
}

// Check returns an error unless the archive has the images with these names and no others, and all
// digests are right.
func (s *Set) Check(names []string) error {
	if err := s.checkBlobs(); err != nil {
		return err
	}
	var wrong error
	for _, entry := range s.entries {
		if !slices.Contains(names, nameOf(entry)) {
			wrong = errors.Join(wrong, fmt.Errorf("the image %s is in the archive, and not in the list", nameOf(entry)))
		}
		if err := s.validate(entry); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("the image %s is not valid: %w", nameOf(entry), err))
		}
	}
	for _, wanted := range names {
		if !slices.ContainsFunc(s.entries, func(d v1.Descriptor) bool { return nameOf(d) == wanted }) {
			wrong = errors.Join(wrong, fmt.Errorf("the image %s is in the list, and not in the archive", wanted))
		}
	}
	return wrong
}

// validate checks an image for each of its platforms. Many images describe a platform in their
// index otherwise than in their configuration, so nothing compares these.
func (s *Set) validate(entry v1.Descriptor) error {
	if !entry.MediaType.IsIndex() {
		return validateImage(s.all, entry)
	}
	index, err := s.all.ImageIndex(entry.Digest)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, platform := range manifest.Manifests {
		if err := validateImage(index, platform); err != nil {
			return fmt.Errorf("for %s: %w", platform.Platform, err)
		}
	}
	return nil
}

func validateImage(of v1.ImageIndex, entry v1.Descriptor) error {
	img, err := of.Image(entry.Digest)
	if err != nil {
		return err
	}
	return validate.Image(img)
}

// Push pushes the images below a registry, each under the last part of its path and its tag. A tag
// that names another image there stays as it is, which say is told.
func (s *Set) Push(ctx context.Context, registry string, say func(format string, args ...any)) error {
	for n, entry := range s.entries {
		tag, err := name.NewTag(nameOf(entry))
		if err != nil {
			return err
		}
		to, err := name.NewTag(strings.TrimSuffix(registry, "/") + "/" + atSite(tag))
		if err != nil {
			return fmt.Errorf("the registry is no host with a path: %w", err)
		}
		say("Pushing %s (%d of %d)", to, n+1, len(s.entries))
		if err := s.push(ctx, to, entry); errors.Is(err, errOther) {
			say("%v, and stays", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) push(ctx context.Context, to name.Tag, entry v1.Descriptor) error {
	if entry.MediaType.IsIndex() {
		index, err := s.all.ImageIndex(entry.Digest)
		if err == nil {
			_, err = push(ctx, to, index)
		}
		return err
	}
	img, err := s.all.Image(entry.Digest)
	if err == nil {
		_, err = push(ctx, to, img)
	}
	return err
}
