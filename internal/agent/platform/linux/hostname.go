package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// validHostname is an RFC 1123 subdomain, as Kubernetes requires of Node names.
var validHostname = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

const maxHostname = 64

// loopbackName is the address that distributions use for the host's own name.
const loopbackName = "127.0.1.1"

// hostname reads and sets the host's name.
type hostname struct {
	root   root
	kernel Kernel
}

// Hostname returns the running system's name.
func (h hostname) Hostname() (string, error) {
	if name := h.root.text("/proc/sys/kernel/hostname"); name != "" {
		return name, nil
	}
	return os.Hostname()
}

// SetHostname sets the name of the running system and of the next boot, and
// makes the name resolve to the host itself. It changes only what differs.
func (h hostname) SetHostname(_ context.Context, name string) error {
	if len(name) > maxHostname || !validHostname.MatchString(name) {
		return fmt.Errorf("%q cannot be a host name", name)
	}
	if h.root.text("/etc/hostname") != name {
		if err := h.root.replace("/etc/hostname", name+"\n"); err != nil {
			return fmt.Errorf("setting the host name: %w", err)
		}
	}
	if err := h.addToHosts(name); err != nil {
		return fmt.Errorf("adding the host name to /etc/hosts: %w", err)
	}
	if current, err := h.Hostname(); err == nil && current == name {
		return nil
	}
	if err := h.kernel.SetHostname(name); err != nil {
		return fmt.Errorf("setting the running system's host name: %w", err)
	}
	return nil
}

// addToHosts adds the name to /etc/hosts in place of the name at loopbackName.
// A file that contains the name at any address stays unchanged.
func (h hostname) addToHosts(name string) error {
	data, err := os.ReadFile(h.root.path("/etc/hosts"))
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
	return h.root.replace("/etc/hosts", text+loopbackName+" "+name+"\n")
}
