package software

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxBytes limits how much of a unit or a configuration file is read.
const maxBytes = 64 << 10

// files are the files of the host. Names are absolute paths on the host.
type files struct{ root, path string }

// identity changes when a file is replaced or written.
type identity struct {
	device, inode  uint64
	size, modified int64
}

func (f files) onDisk(name string) string { return filepath.Join(f.root, name) }

func (f files) identify(name string) (identity, error) {
	info, err := os.Stat(f.onDisk(name))
	if err != nil {
		return identity{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, errors.ErrUnsupported
	}
	return identity{device: stat.Dev, inode: stat.Ino, size: info.Size(), modified: info.ModTime().UnixNano()}, nil
}

func (f files) isExecutable(name string) bool {
	info, err := os.Stat(f.onDisk(name))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// resolved returns the file's name without symbolic links.
func (f files) resolved(name string) string {
	root, err := filepath.EvalSymlinks(f.root)
	if err != nil {
		return name
	}
	path, err := filepath.EvalSymlinks(f.onDisk(name))
	if err != nil {
		return name
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
}

// program returns the name of the file that the host would start: the one of the program's
// unit, else the first in PATH. It returns "" if the host does not have the program.
func (f files) program(p program) string {
	if name := f.started(p); name != "" && f.isExecutable(name) {
		return name
	}
	for _, dir := range filepath.SplitList(f.path) {
		if name := filepath.Join(dir, p.name); filepath.IsAbs(name) && f.isExecutable(name) {
			return name
		}
	}
	return ""
}

// text returns the beginning of a file, or "" if it cannot be read.
func (f files) text(name string) string {
	// A pipe would block, and /dev/null masks a unit.
	if info, err := os.Stat(f.onDisk(name)); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	file, err := os.Open(f.onDisk(name))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxBytes))
	if err != nil {
		return ""
	}
	return string(bytes.ToValidUTF8(data, nil))
}

// glob returns the names that match a pattern, sorted.
func (f files) glob(pattern string) []string {
	paths, err := filepath.Glob(f.onDisk(pattern))
	if err != nil {
		return nil
	}
	for i, path := range paths {
		paths[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, f.root), "/")
	}
	return paths
}

// socket returns the socket that a container runtime is configured to serve. The last file
// that names one wins.
func (f files) socket(r containerRuntime) string {
	socket := r.socket
	for _, pattern := range r.files {
		for _, name := range f.glob(pattern) {
			if value := setting(f.text(name), r.section, r.key); filepath.IsAbs(value) {
				socket = value
			}
		}
	}
	return socket
}

// setting returns a text of a TOML document, or "".
func setting(document, section, key string) string {
	current, found := "", ""
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			current = strings.ReplaceAll(strings.Trim(line, "[] "), " ", "")
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || current != section || strings.TrimSpace(name) != key {
			continue
		}
		value = strings.TrimSpace(value)
		if value == "" || value[0] != '"' && value[0] != '\'' {
			continue
		}
		if text, _, closed := strings.Cut(value[1:], value[:1]); closed {
			found = text
		}
	}
	return found
}
