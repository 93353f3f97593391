package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Host is the host that an operation works on: its files, programs and accounts.
type Host struct {
	*Files
	*Programs
	*Accounts
}

// New returns the host whose file system begins at root. chown sets the
// owner of a file; nil means os.Chown.
func New(root string, system System, chown func(path string, uid, gid int) error) *Host {
	if chown == nil {
		chown = os.Chown
	}
	files := &Files{root: root, chown: chown}
	return &Host{files, &Programs{files: files, system: system}, &Accounts{files: files}}
}

// Files are the files of a host. Paths are the host's: Files adds the directory
// that stands for "/" in tests.
type Files struct {
	root  string
	chown func(path string, uid, gid int) error
}

// RealPath returns the path for system calls of a resolved path of the host.
func (f *Files) RealPath(path string) string { return filepath.Join(f.root, path) }

const maxLinks = 40

// Resolve follows all symbolic links of a path, the last one included, as if
// Root were "/". Missing parts of the path stay unchanged.
func (f *Files) Resolve(path string) (string, error) {
	todo := strings.Split(path, "/")
	at := "/"
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		next := filepath.Join(at, part) // ".." ends at "/"
		if next == at || part == ".." {
			at = next
			continue
		}
		info, err := os.Lstat(f.RealPath(next))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{next}, todo...)...), nil
		case err != nil:
			return "", fmt.Errorf("resolving %s: %w", path, err)
		case info.Mode()&fs.ModeSymlink == 0:
			at = next
			continue
		}
		links++
		if links > maxLinks {
			return "", fmt.Errorf("resolving %s: too many symbolic links", path)
		}
		to, err := os.Readlink(f.RealPath(next))
		if err != nil {
			return "", fmt.Errorf("resolving %s: %w", path, err)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		todo = append(strings.Split(to, "/"), todo...)
	}
	return at, nil
}

// Stat follows links. It returns nil for a missing file.
func (f *Files) Stat(path string) (fs.FileInfo, error) {
	target, err := f.Resolve(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(f.RealPath(target))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	return info, nil
}

// Exists reports whether a file exists. It follows links.
func (f *Files) Exists(path string) bool {
	info, err := f.Stat(path)
	return err == nil && info != nil
}

// Read returns the content of a file, or nil for a missing file.
func (f *Files) Read(path string) ([]byte, error) {
	target, err := f.Resolve(path)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.RealPath(target))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return text, nil
}

// TableHas reports whether a table of the kernel has value in a column, counted
// from 0.
func (f *Files) TableHas(file, value string, column int) (bool, error) {
	text, err := f.Read(file)
	if err != nil {
		return false, err
	}
	value = strings.NewReplacer(" ", `\040`, "\t", `\011`).Replace(value)
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > column && fields[column] == value {
			return true, nil
		}
	}
	return false, nil
}
