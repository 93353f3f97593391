package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

// Copies say which images an archive has, and where they come from.
type Copies struct {
	// Names are images with their tags.
	Names []string
	// Architectures are those that are copied. An image needs one of them.
	Architectures []string
	// Mirror is a registry, perhaps with a path, that has the images under the paths that they
	// have at their own registries. Blank copies them from these.
	Mirror string
	// Time is the time of all files in the archive.
	Time time.Time
	// Say prints what goes on.
	Say func(format string, args ...any)
}

// Copy writes an archive of images, in which each has its name. It uses the credentials of docker
// login or podman login, and compares all that it copies with the digests.
func Copy(ctx context.Context, out string, o Copies) (err error) {
	tags, err := parse(o.Names)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	to, err := layout.Write(work, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the image layout: %w", err)
	}
	for n, tag := range tags {
		o.Say("Copying %s (%d of %d)", tag, n+1, len(tags))
		if err := o.copy(ctx, to, tag); err != nil {
			return fmt.Errorf("copying %s: %w", tag, err)
		}
	}
	files, err := archive.Tree(work)
	if err != nil {
		return err
	}
	return archive.Create(out, func(w io.Writer) error { return archive.Write(w, files, o.Time) })
}

// parse returns the images in the order of their names.
func parse(names []string) ([]name.Tag, error) {
	var tags []name.Tag
	sites := map[string]string{}
	for _, image := range names {
		tag, err := name.NewTag(image, name.StrictValidation)
		if err != nil {
			return nil, fmt.Errorf("%q is no image with a registry and a tag: %w", image, err)
		}
		site := atSite(tag)
		switch first := sites[site]; first {
		case "":
			sites[site] = image
			tags = append(tags, tag)
		case image:
		default:
			return nil, fmt.Errorf("%s and %s would both be %s at a site: copy one of them by hand", first, image, site)
		}
	}
	slices.SortFunc(tags, func(a, b name.Tag) int { return cmp.Compare(a.String(), b.String()) })
	return tags, nil
}

// atSite returns an image's name below the registry of a site. clusterctl and kubeadm look for
// images by the last part of their paths, once a registry of one's own is set.
func atSite(tag name.Tag) string { return path.Base(tag.RepositoryStr()) + ":" + tag.TagStr() }

// copy appends an image to the layout.
func (o Copies) copy(ctx context.Context, to layout.Path, tag name.Tag) error {
	from := tag
	if o.Mirror != "" {
		mirrored, err := name.NewTag(o.Mirror + "/" + tag.RepositoryStr() + ":" + tag.TagStr())
		if err != nil {
			return fmt.Errorf("the mirror is no host with a path: %w", err)
		}
		from = mirrored
	}
	there, err := remote.Get(from, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return err
	}
	annotations := layout.WithAnnotations(map[string]string{nameAnnotation: tag.String()})
	if !there.MediaType.IsIndex() {
		img, err := there.Image()
		if err != nil {
			return err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return err
		}
		if err := o.check(tag, []string{config.Architecture}); err != nil {
			return err
		}
		return to.AppendImage(img, annotations)
	}
	index, err := there.ImageIndex()
	if err != nil {
		return err
	}
	index = mutate.RemoveManifests(index, func(d v1.Descriptor) bool { return !slices.Contains(o.Architectures, architecture(d)) })
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var has []string
	for _, d := range manifest.Manifests {
		has = append(has, architecture(d))
	}
	if err := o.check(tag, has); err != nil {
		return err
	}
	return to.AppendIndex(index, annotations)
}

// architecture returns the architecture of an entry of an index, or blank if it is not for Linux.
func architecture(d v1.Descriptor) string {
	if d.Platform == nil || d.Platform.OS != "linux" {
		return ""
	}
	return d.Platform.Architecture
}

// check returns an error if an image has none of the architectures, and says which it lacks.
func (o Copies) check(tag name.Tag, has []string) error {
	var missing []string
	for _, wanted := range o.Architectures {
		if !slices.Contains(has, wanted) {
			missing = append(missing, wanted)
		}
	}
	if len(missing) == len(o.Architectures) {
		return fmt.Errorf("there is no image for Linux on %v", o.Architectures)
	}
	if len(missing) > 0 {
		o.Say("%s is not there for %v", tag, missing)
	}
	return nil
}
