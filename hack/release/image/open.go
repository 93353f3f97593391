package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

// Image is an image layout with one image that was unpacked. Close removes it.
type Image struct {
	unpacked
	// Name is the image with its tag.
	Name string

	index v1.ImageIndex
}

// Open unpacks the archive of an image layout that has one image for several architectures.
func Open(file string) (*Image, error) {
	u, err := unpack(file)
	if err != nil {
		return nil, err
	}
	i := &Image{unpacked: u}
	if err := i.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the image of %s: %w", file, err), u.Close())
	}
	return i, nil
}

// Digest is the digest of the index of all architectures.
func (i *Image) Digest() (string, error) {
	digest, err := i.index.Digest()
	return digest.String(), err
}

// Check returns an error unless the image is complete for the architectures, has no others, and
// all its digests are right.
func (i *Image) Check(architectures ...string) error {
	if err := i.checkBlobs(); err != nil {
		return err
	}
	if err := validate.Index(i.index); err != nil {
		return fmt.Errorf("the image is not valid: %w", err)
	}
	manifest, err := i.index.IndexManifest()
	if err != nil {
		return err
	}
	if got := len(manifest.Manifests); got != len(architectures) {
		return fmt.Errorf("the image has %d platforms, not %d", got, len(architectures))
	}
	for _, architecture := range architectures {
		if _, err := i.platform(architecture); err != nil {
			return err
		}
	}
	return nil
}

// File returns the content of a file of the image for an architecture, or fs.ErrNotExist.
func (i *Image) File(architecture, name string) ([]byte, error) {
	img, err := i.platform(architecture)
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		content, err := fileOf(layer, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return content, err
		}
	}
	return nil, fmt.Errorf("%s in the image for %s: %w", name, architecture, fs.ErrNotExist)
}

func fileOf(layer v1.Layer, name string) ([]byte, error) {
	r, err := layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	return archive.Read(bytes.NewReader(content), name)
}

// read finds the one image of the layout.
func (i *Image) read() (err error) {
	if len(i.entries) != 1 {
		return fmt.Errorf("the layout has %d images, not one", len(i.entries))
	}
	i.Name = nameOf(i.entries[0])
	i.index, err = i.all.ImageIndex(i.entries[0].Digest)
	return err
}

func (i *Image) platform(architecture string) (v1.Image, error) {
	manifest, err := i.index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, entry := range manifest.Manifests {
		if p := entry.Platform; p != nil && p.OS == "linux" && p.Architecture == architecture {
			return i.index.Image(entry.Digest)
		}
	}
	return nil, fmt.Errorf("the image is not for linux/%s", architecture)
}
