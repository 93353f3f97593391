package local

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

const (
	hostsFile = "/etc/hosts"
	loopback  = "127.0.0.1"
	// marker ends the one line that is the agent's.
	marker = "# elemental-agent: the cluster's endpoint, which this host forwards"
)

// hosts is the host's /etc/hosts.
type hosts struct {
	root   string
	system durable.System
	log    *slog.Logger
}

func (h hosts) path() string { return filepath.Join(h.root, hostsFile) }

// lineOf returns our line for a name.
func lineOf(name string) string { return loopback + " " + name + " " + marker }

// read returns the lines that are not ours, and ours.
func (h hosts) read() (others, ours []string, err error) {
	data, err := os.ReadFile(h.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", hostsFile, err)
	}
	for line := range strings.Lines(string(data)) {
		if text := strings.TrimRight(line, "\r\n"); strings.HasSuffix(text, marker) {
			ours = append(ours, text)
			continue
		}
		others = append(others, line)
	}
	return others, ours, nil
}

// names returns the names in our line.
func (h hosts) names() (names []string, err error) {
	_, ours, err := h.read()
	for _, line := range ours {
		if fields := strings.Fields(strings.TrimSuffix(line, marker)); len(fields) > 0 {
			names = append(names, fields[1:]...)
		}
	}
	return names, err
}

// set makes our line map a name to the host itself; a blank name removes the line. It
// writes only if that changes the file, and changes no other line.
func (h hosts) set(name string) error {
	others, ours, err := h.read()
	if err != nil {
		return err
	}
	if err := checkOthers(others, name); err != nil {
		return err
	}
	if name == "" && len(ours) == 0 || name != "" && slices.Equal(ours, []string{lineOf(name)}) {
		return nil
	}
	text := strings.Join(others, "")
	if name != "" {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += lineOf(name) + "\n"
	}
	if err := h.write(text); err != nil {
		return fmt.Errorf("changing %s: %w", hostsFile, err)
	}
	if name != "" {
		h.log.Info("The control plane's endpoint leads to this host's forwarder", "path", hostsFile, "host", name)
	}
	return nil
}

// checkOthers returns an error if a line that is not ours maps a name elsewhere.
func checkOthers(others []string, name string) error {
	for _, line := range others {
		text, _, _ := strings.Cut(line, "#")
		fields := strings.Fields(text)
		if name == "" || len(fields) < 2 || fields[0] == loopback {
			continue
		}
		if slices.ContainsFunc(fields[1:], func(other string) bool { return strings.EqualFold(other, name) }) {
			return fmt.Errorf("%s maps %s to %s: remove that line, the host has to reach the endpoint through itself", hostsFile, name, fields[0])
		}
	}
	return nil
}

// write replaces the file with the same mode and owner. One that is a mount, as in
// containers, is written in place.
func (h hosts) write(text string) error {
	info, err := os.Lstat(h.path())
	if errors.Is(err, fs.ErrNotExist) {
		return durable.Replace(h.system, h.path(), []byte(text), func(f durable.File) error { return f.Chmod(0o644) })
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is a link or no file: replace it by a file")
	}
	points, err := mounts.Points(h.root)
	if err == nil && slices.Contains(points, hostsFile) {
		return writeInPlace(h.path(), text)
	}
	err = durable.Replace(h.system, h.path(), []byte(text), func(f durable.File) error {
		if file, ok := f.(*os.File); ok {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				if err := file.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
					return err
				}
			}
		}
		return f.Chmod(info.Mode().Perm())
	})
	if errors.Is(err, syscall.EBUSY) {
		// It is a mount that is not listed.
		return writeInPlace(h.path(), text)
	}
	return err
}

func writeInPlace(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
