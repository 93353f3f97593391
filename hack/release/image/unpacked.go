package image

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

// nameAnnotation has the image's name in a layout.
const nameAnnotation = "org.opencontainers.image.ref.name"

// unpacked is an image layout that was unpacked.
type unpacked struct {
	folder string
	// all has the images, and entries describes them.
	all     v1.ImageIndex
	entries []v1.Descriptor
}

// unpack unpacks the archive of an image layout whose images all have names.
func unpack(file string) (_ unpacked, err error) {
	f, err := os.Open(file)
	if err != nil {
		return unpacked{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	u := unpacked{}
	if u.folder, err = os.MkdirTemp("", "image-"); err != nil {
		return unpacked{}, err
	}
	if err := errors.Join(archive.Extract(f, u.folder), u.read()); err != nil {
		return unpacked{}, errors.Join(fmt.Errorf("reading the images of %s: %w", file, err), u.Close())
	}
	return u, nil
}

// Close removes what was unpacked.
func (u unpacked) Close() error { return os.RemoveAll(u.folder) }

func (u *unpacked) read() error {
	path, err := layout.FromPath(u.folder)
	if err != nil {
		return err
	}
	if u.all, err = path.ImageIndex(); err != nil {
		return err
	}
	manifest, err := u.all.IndexManifest()
	if err != nil {
		return err
	}
	u.entries = manifest.Manifests
	for _, entry := range u.entries {
		if nameOf(entry) == "" {
			return fmt.Errorf("the layout does not name the image %s", entry.Digest)
		}
	}
	return nil
}

func nameOf(entry v1.Descriptor) string { return entry.Annotations[nameAnnotation] }

// checkBlobs compares each blob with the digest in its name, as the validation of the library
// believes those of manifests and configurations.
func (u unpacked) checkBlobs() error {
	blobs, err := archive.Tree(filepath.Join(u.folder, "blobs", "sha256"))
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
