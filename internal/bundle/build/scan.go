package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// Options say what a bundle is made of.
type Options struct {
	// From is the folder with the files.
	From string
	// Version is the version of Kubernetes, such as v1.36.3.
	Version string
	// Architecture is that of the hosts, as Go names it.
	Architecture string
	Limits       bundle.Limits
}

// Bundle is what Write writes.
type Bundle struct {
	Manifest bundle.Manifest
	from     string
	limits   bundle.Limits
}

// Scan reads all files of a folder. It refuses what does not belong into a bundle, and
// programs for another architecture.
func Scan(ctx context.Context, o Options) (*Bundle, error) {
	b := &Bundle{
		Manifest: bundle.Manifest{Format: bundle.Format, KubernetesVersion: o.Version, Architecture: o.Architecture},
		from:     o.From, limits: o.Limits,
	}
	// The separator has a link to a folder followed.
	err := filepath.WalkDir(o.From+string(filepath.Separator), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name, err := filepath.Rel(o.From, path)
		if err != nil {
			return err
		}
		return b.add(name, path, entry)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the folder: %w", err)
	}
	slices.SortFunc(b.Manifest.Files, func(x, y bundle.File) int { return cmp.Compare(x.Name, y.Name) })
	if err := b.Manifest.Check(o.Limits); err != nil {
		return nil, fmt.Errorf("checking what the bundle would hold: %w", err)
	}
	return b, nil
}

// Write writes the bundle. It fails if a file changed since it was scanned. written is
// called after each file.
func (b *Bundle) Write(ctx context.Context, w io.Writer, written func(bundle.File)) error {
	return bundle.Write(ctx, w, b.Manifest, b.limits, func(f bundle.File) (io.ReadCloser, error) {
		file, _, err := open(b.path(f))
		return file, err
	}, written)
}

func (b *Bundle) path(f bundle.File) string { return filepath.Join(b.from, f.Name) }

// add adds an entry of the folder, unless it is a folder.
func (b *Bundle) add(name, path string, entry fs.DirEntry) error {
	switch {
	case entry.IsDir():
		return checkFolder(name)
	case entry.Type()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: put the file itself in its place", path)
	case !entry.Type().IsRegular():
		return fmt.Errorf("%s is no regular file: remove it", path)
	case len(b.Manifest.Files) == b.limits.Files:
		return fmt.Errorf("there are more than %d files: put fewer into the bundle", b.limits.Files)
	}
	file, info, err := open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
		return fmt.Errorf("%s has the mode %v, and a bundle carries no special bits: remove them by chmod a-st", path, info.Mode())
	}
	f, err := place(name, info.Mode())
	if err != nil {
		return err
	}
	sum := sha256.New()
	if f.Size, err = io.Copy(sum, io.LimitReader(file, b.limits.FileBytes+1)); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if f.Kind == bundle.KindProgram {
		if err := checkArchitecture(file, b.Manifest.Architecture); err != nil {
			return fmt.Errorf("%s %w", path, err)
		}
	}
	b.Manifest.Files = append(b.Manifest.Files, f)
	return nil
}

// open opens a regular file. Non-blocking, because a pipe may have taken its place.
func open(path string) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file any more", path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// checkArchitecture returns an error for an ELF program that is damaged or of another
// architecture. Scripts have no architecture.
func checkArchitecture(file io.ReaderAt, want string) error {
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := file.ReadAt(magic, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading its beginning: %w", err)
	}
	if string(magic) != elf.ELFMAG {
		return nil
	}
	parsed, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("is damaged, so copy it again: %w", err)
	}
	var got string
	switch parsed.Machine {
	case elf.EM_X86_64:
		got = "amd64"
	case elf.EM_AARCH64:
		got = "arm64"
	default:
		got = strings.ToLower(strings.TrimPrefix(parsed.Machine.String(), "EM_"))
	}
	if got != want {
		return fmt.Errorf("is a program for %s, and the bundle is for %s: replace it, or correct --arch", got, want)
	}
	return nil
}
