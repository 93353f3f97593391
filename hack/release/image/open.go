package image

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

// Image is an image layout that was unpacked.
type Image struct {
	// Name is the image with its tag.
	Name string

	index v1.ImageIndex
	// folder has the layout.
	folder string
}

// Open unpacks the archive of an image layout that has one image for several architectures.
// Close removes what was unpacked.
func Open(file string) (_ *Image, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	folder, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	i := &Image{folder: folder}
	if err := errors.Join(archive.Extract(f, folder), i.read()); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the image of %s: %w", file, err), i.Close())
	}
	return i, nil
}

// Close removes what was unpacked.
func (i *Image) Close() error { return os.RemoveAll(i.folder) }

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

// checkBlobs compares each blob with the digest in its name, as the validation of the library
// believes those of manifests and configurations.
func (i *Image) checkBlobs() error {
	blobs, err := archive.Tree(filepath.Join(i.folder, "blobs", "sha256"))
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		content, err := os.ReadFile(blob.Path)
		if err != nil {
			return err
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != blob.Name {
			return fmt.Errorf("the blob %s of the image has the digest %s", blob.Name, sum)
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

// read reads the one entry of the layout.
func (i *Image) read() error {
	path, err := layout.FromPath(i.folder)
	if err != nil {
		return err
	}
	all, err := path.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("the layout has %d images, not one", len(manifest.Manifests))
	}
	entry := manifest.Manifests[0]
	if i.Name = entry.Annotations[nameAnnotation]; i.Name == "" {
		return errors.New("the layout does not name the image")
	}
	i.index, err = all.ImageIndex(entry.Digest)
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
