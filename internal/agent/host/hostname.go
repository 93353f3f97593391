package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

// validHostname is RFC 1123, as Kubernetes wants the names of Nodes.
var validHostname = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

const maxHostname = 64

// Hostname is the running system's.
func (l *Linux) Hostname() (string, error) {
	if name := l.text("/proc/sys/kernel/hostname"); name != "" {
		return name, nil
	}
	return os.Hostname()
}

// SetHostname names the host, now and after the next boot, and makes the name
// resolve to itself. It does nothing when all of that is so already.
func (l *Linux) SetHostname(_ context.Context, name string) error {
	if len(name) > maxHostname || !validHostname.MatchString(name) {
		return fmt.Errorf("%q cannot be a host name", name)
	}
	if l.text("/etc/hostname") != name {
		if err := l.replace("/etc/hostname", name+"\n"); err != nil {
			return fmt.Errorf("setting the host name: %w", err)
		}
	}
	if err := l.addToHosts(name); err != nil {
		return fmt.Errorf("adding the host name to /etc/hosts: %w", err)
	}
	if now, err := l.Hostname(); err == nil && now == name {
		return nil
	}
	if err := l.kernel.SetHostname(name); err != nil {
		return fmt.Errorf("setting the running system's host name: %w", err)
	}
	return nil
}

// loopbackName is the address that distributions give a host's own name.
const loopbackName = "127.0.1.1"

// addToHosts leaves the file alone when the name is in it, whatever address it
// has there. An earlier name of ours is replaced.
func (l *Linux) addToHosts(name string) error {
	data, err := os.ReadFile(l.path("/etc/hosts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(strings.SplitN(line, "#", 2)[0])
		for i, field := range fields {
			if i > 0 && field == name {
				return nil
			}
		}
		if len(fields) == 0 || fields[0] != loopbackName {
			kept.WriteString(line)
		}
	}
	text := kept.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return l.replace("/etc/hosts", text+loopbackName+" "+name+"\n")
}

// replace writes a file atomically. Where it is a mount of its own, as in
// containers, it is written in place.
func (l *Linux) replace(name, content string) error {
	path := l.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // /etc is for everybody
		return err
	}
	if l.isMountPoint(name) {
		return os.WriteFile(path, []byte(content), 0o644) //nolint:gosec // for everybody to read
	}
	return durable.WriteFile(path, []byte(content), 0o644)
}

// isMountPoint is for writing only: where nothing tells, the kernel refuses to
// rename a file to a mount point.
func (l *Linux) isMountPoint(name string) bool {
	points, err := mounts.Points(l.root)
	return err == nil && slices.Contains(points, name)
}
