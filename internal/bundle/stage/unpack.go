package stage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// chunk is how many bytes are unpacked between two calls of Options.Progress.
const chunk = 4 << 20

// Options say which bundle is wanted. All fields are required.
type Options struct {
	// SHA256 is the pinned digest of the bundle, in lower-case hex.
	SHA256 string
	// Version is the version of Kubernetes, such as v1.36.3.
	Version string
	// Architecture is the host's, as Go names it.
	Architecture string
	Limits       bundle.Limits
	// Accept is called with the manifest before anything is written or removed. Its error
	// ends Unpack, for example if the disk lacks space.
	Accept func(bundle.Manifest) error
	// Progress is called often, with increasing values.
	Progress func(Progress)
}

// Progress is how far Unpack is.
type Progress struct {
	// Name is the file that is being unpacked.
	Name string
	// Done and Total are bytes of all files together.
	Done, Total int64
}

// Unpack unpacks a bundle to a folder. It reads the bundle twice: nothing is unpacked
// before the whole bundle has the pinned digest. A folder that already has this bundle is
// verified and left as it is. Any other content of the folder is removed first, and after
// an error nothing remains of it. Its parent must exist.
//
// The manifest is also checked for version and architecture.
func Unpack(ctx context.Context, file io.ReadSeeker, folder string, o Options) (bundle.Manifest, error) {
	return unpack(ctx, system{}, file, folder, o)
}

func unpack(ctx context.Context, d disk, file io.ReadSeeker, folder string, o Options) (_ bundle.Manifest, err error) {
	if err := rewind(file); err != nil {
		return bundle.Manifest{}, err
	}
	if err := bundle.Verify(ctx, file, o.SHA256, o.Limits); err != nil {
		return bundle.Manifest{}, err
	}
	if err := rewind(file); err != nil {
		return bundle.Manifest{}, err
	}
	sum := sha256.New()
	reader, err := bundle.NewReader(ctx, io.TeeReader(file, sum), o.Limits)
	if err != nil {
		return bundle.Manifest{}, err
	}
	defer reader.Close()
	manifest := reader.Manifest()
	if err := manifest.CheckFor(o.Version, o.Architecture); err != nil {
		return bundle.Manifest{}, err
	}
	data, err := manifest.Encode()
	if err != nil {
		return bundle.Manifest{}, err
	}
	if has(ctx, d, folder, data, o.Limits) {
		return manifest, nil
	}
	if ctx.Err() != nil {
		// Nothing is known of the folder.
		return bundle.Manifest{}, context.Cause(ctx)
	}
	if err := o.Accept(manifest); err != nil {
		return bundle.Manifest{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.RemoveAll(folder))
		}
	}()
	if err := begin(d, folder, manifest); err != nil {
		return bundle.Manifest{}, err
	}
	if err := writeFiles(d, reader, folder, o.Progress); err != nil {
		return bundle.Manifest{}, err
	}
	// The files came from the second reading.
	if got := hex.EncodeToString(sum.Sum(nil)); got != o.SHA256 {
		return bundle.Manifest{}, fmt.Errorf("the bundle changed while it was unpacked: %w: it is %s, not %s", bundle.ErrWrongDigest, got, o.SHA256)
	}
	return manifest, finish(d, folder, manifest, data)
}

func rewind(file io.Seeker) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("going to the beginning of the bundle: %w", err)
	}
	return nil
}

// has reports whether the folder is complete and has this manifest.
func has(ctx context.Context, d disk, folder string, manifest []byte, l bundle.Limits) bool {
	data, err := d.ReadFile(filepath.Join(folder, bundle.ManifestName))
	if err != nil || !bytes.Equal(data, manifest) {
		return false
	}
	_, err = load(ctx, d, folder, l)
	return err == nil
}

// begin makes the folder anew, with the folders of the files.
func begin(d disk, folder string, m bundle.Manifest) error {
	if err := d.RemoveAll(folder); err != nil {
		return fmt.Errorf("removing what was unpacked before: %w", err)
	}
	for _, path := range folders(folder, m) {
		if err := d.Mkdir(path); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
	}
	return d.SyncDir(filepath.Dir(folder))
}

// folders returns the folder and those of the files, outer ones first.
func folders(folder string, m bundle.Manifest) []string {
	out := []string{folder}
	for _, f := range m.Files {
		for path := filepath.Dir(f.Name); path != "."; path = filepath.Dir(path) {
			out = append(out, filepath.Join(folder, path))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// finish makes the names durable, then writes the manifest.
func finish(d disk, folder string, m bundle.Manifest, data []byte) error {
	for _, path := range folders(folder, m) {
		if err := d.SyncDir(path); err != nil {
			return err
		}
	}
	return durable.Replace(d, filepath.Join(folder, bundle.ManifestName), data, func(f durable.File) error { return f.Chmod(0o600) })
}

func writeFiles(d disk, reader *bundle.Reader, folder string, report func(Progress)) error {
	progress := Progress{Total: reader.Manifest().UnpackedBytes()}
	for {
		f, content, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		progress.Name = f.Name
		if err := writeFile(d, filepath.Join(folder, f.Name), f.Mode, content, func(n int64) {
			progress.Done += n
			report(progress)
		}); err != nil {
			return err
		}
	}
}

// writeFile makes a file durable, except for its name.
func writeFile(d disk, path string, mode bundle.Mode, content io.Reader, written func(int64)) (err error) {
	f, err := d.Create(path)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	for done := false; err == nil && !done; {
		var n int64
		n, err = io.CopyN(f, content, chunk)
		if done = errors.Is(err, io.EOF); done {
			err = nil
		}
		written(n)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(mode))
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("unpacking to %s: %w", path, err)
	}
	return nil
}
