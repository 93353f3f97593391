package linux

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

// root is the directory that contains the host's files, usually "/". Names are
// absolute paths on the host.
type root string

func (r root) path(name string) string { return filepath.Join(string(r), name) }

// name is the inverse of path.
func (r root) name(path string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, string(r)), "/")
}

// text returns the content of a small file without surrounding white space, or
// "" if it cannot be read.
func (r root) text(name string) string {
	data, err := os.ReadFile(r.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(data), ""))
}

func (r root) exists(name string) bool {
	_, err := os.Lstat(r.path(name))
	return err == nil
}

func (r root) anyExists(names []string) bool { return slices.ContainsFunc(names, r.exists) }

// eachPair calls f with the trimmed key and value of every line that contains
// the separator.
func (r root) eachPair(name, separator string, f func(key, value string)) {
	file, err := os.Open(r.path(name))
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), separator); ok {
			f(strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
}

// table returns the fields of each line of a file.
func (r root) table(name string) [][]string {
	data, err := os.ReadFile(r.path(name))
	if err != nil {
		return nil
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			rows = append(rows, fields)
		}
	}
	return rows
}

// glob returns the names that match a pattern.
func (r root) glob(pattern string) ([]string, error) {
	paths, err := filepath.Glob(r.path(pattern))
	if err != nil {
		return nil, err
	}
	for i, path := range paths {
		paths[i] = r.name(path)
	}
	return paths, nil
}

// program returns the name of an executable, or "" if it is not installed.
func (r root) program(name string) string {
	for _, dir := range []string{"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/opt/bin", "/opt/rke2/bin"} {
		info, err := os.Stat(r.path(dir + "/" + name))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + "/" + name
		}
	}
	return ""
}

// replace writes a file atomically. A file that is a mount point, as in
// containers, is written in place.
func (r root) replace(name, content string) error {
	path := r.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // /etc is readable by all users
		return err
	}
	if r.isMountPoint(name) {
		return os.WriteFile(path, []byte(content), 0o644) //nolint:gosec // readable by all users
	}
	return durable.WriteFile(path, []byte(content), 0o644)
}

// isMountPoint returns false if the mounts are unknown: the kernel refuses to
// rename a file onto a mount point.
func (r root) isMountPoint(name string) bool {
	points, err := mounts.Points(string(r))
	return err == nil && slices.Contains(points, name)
}

// remove removes a file or directory unless a mount point is inside it: the
// content of a Pod's mount, such as a volume on a file server, does not belong
// to the node. The kernel lists mounts by their real paths, and a directory
// such as /var/lib/kubelet may be a link to another disk.
func (r root) remove(name string) error {
	path := r.path(name)
	resolved, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	resolved = filepath.Join("/", strings.TrimPrefix(resolved, string(r)), filepath.Base(path))
	points, err := mounts.Points(string(r))
	if err != nil {
		return fmt.Errorf("%s was kept: %w", name, err)
	}
	if mount, found := mounts.At(points, resolved); found {
		return fmt.Errorf("%s was kept, because %s is mounted: unmount it", name, mount)
	}
	return os.RemoveAll(path)
}

// removeAll removes everything that matches a pattern.
func (r root) removeAll(pattern string) error {
	names, err := r.glob(pattern)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		failures = append(failures, r.remove(name))
	}
	return errors.Join(failures...)
}
