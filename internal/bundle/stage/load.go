package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// Load returns the manifest of a folder to which a bundle was unpacked, also after the
// bundle itself was removed. It reads all files, and returns an error unless each of them
// is there, as the manifest says. Load does not know which bundle it was, so its digest
// should be in the folder's name.
func Load(ctx context.Context, folder string, l bundle.Limits) (bundle.Manifest, error) {
	return load(ctx, system{}, folder, l)
}

func load(ctx context.Context, d disk, folder string, l bundle.Limits) (bundle.Manifest, error) {
	data, err := d.ReadFile(filepath.Join(folder, bundle.ManifestName))
	if err != nil {
		return bundle.Manifest{}, fmt.Errorf("reading the manifest of an unpacked bundle: %w", err)
	}
	manifest, err := bundle.Decode(data, l)
	if err != nil {
		return bundle.Manifest{}, fmt.Errorf("checking %s in %s: %w", bundle.ManifestName, folder, err)
	}
	for _, f := range manifest.Files {
		if ctx.Err() != nil {
			return bundle.Manifest{}, context.Cause(ctx)
		}
		if err := check(d, filepath.Join(folder, f.Name), f); err != nil {
			return bundle.Manifest{}, fmt.Errorf("%w: unpack the bundle again", err)
		}
	}
	return manifest, nil
}

// check returns an error unless a file is as the manifest says.
func check(d disk, path string, want bundle.File) (err error) {
	f, err := d.Open(path)
	if err != nil {
		return fmt.Errorf("verifying an unpacked file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("looking at %s: %w", path, err)
	}
	if info.Mode() != fs.FileMode(want.Mode) || info.Size() != want.Size {
		return fmt.Errorf("%s is %v with %d bytes, not a file %v with %d bytes", path, info.Mode(), info.Size(), fs.FileMode(want.Mode), want.Size)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.SHA256 {
		return fmt.Errorf("the SHA-256 of %s is %s, not %s", path, got, want.SHA256)
	}
	return nil
}
