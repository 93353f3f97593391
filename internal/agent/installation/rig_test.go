package installation_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const version = "v1.36.3"

// contents are the files of a bundle with a container runtime, by name.
func contents(version string) map[string]string {
	return map[string]string{
		"bin/containerd": "containerd", "bin/ctr": "ctr", "bin/kubeadm": "kubeadm " + version, "bin/kubectl": "kubectl " + version,
		"bin/kubelet": "kubelet " + version, "cni/loopback": "loopback",
		"files/etc/containerd/config.toml": "version = 3\n", "files/etc/modules-load.d/kubernetes.conf": "overlay\n",
		"files/etc/sysctl.d/kubernetes.conf": "net.ipv4.ip_forward = 1\n", "images/pause.tar": "pause",
		"units/containerd.service": "[Service]\n", "units/kubelet.service": "[Service]\n", "units/kubelet.service.d/10-kubeadm.conf": "[Service]\n",
	}
}

func digest(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// host is a host in a folder.
type host struct {
	t     *testing.T
	root  string
	disk  *disk
	files state.Files
	// ran are the command lines of programs; fails are those that fail.
	ran   []string
	fails map[string]bool
	// onRun is called with each command line.
	onRun func(line string)
	// active are the units that run.
	active map[string]bool
	found  protocol.Kubernetes
	// origins are those of files; others are of no package.
	origins map[string]protocol.Origin
	// before is what the host had.
	before map[string]string
	log    strings.Builder
	now    time.Time
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, root: t.TempDir(), fails: map[string]bool{}, active: map[string]bool{}, origins: map[string]protocol.Origin{}, now: time.Unix(0, 0)}
	for _, folder := range []string{wants, "/usr/local/bin", "/var/lib/elemental", "/run", "/opt", "/etc/sysctl.d", "/etc/modules-load.d"} {
		if err := os.MkdirAll(filepath.Join(h.root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.onRun = func(line string) {
		if unit, ok := strings.CutPrefix(line, "systemctl enable "); ok {
			h.enable(unit)
		}
		if unit, ok := strings.CutPrefix(line, "systemctl disable "); ok {
			h.disable(unit)
		}
		if unit, ok := strings.CutPrefix(line, "systemctl start "); ok {
			h.active[unit] = true
		}
		if unit, ok := strings.CutPrefix(line, "systemctl stop "); ok {
			delete(h.active, unit)
		}
		if line == "systemctl start containerd.service" {
			h.write("/run/containerd/containerd.sock", "")
			h.write("/var/lib/containerd/image", "")
		}
	}
	h.before = h.tree()
	h.boot(-1)
	return h
}

// boot starts the agent, whose power is lost at an operation of the disk.
func (h *host) boot(powerFor int) {
	h.t.Helper()
	h.disk = &disk{left: -1, contents: map[string]bool{}, names: map[string]bool{}, links: map[string]bool{}, moved: map[string]string{}}
	files, err := state.OpenDir(filepath.Join(h.root, "/var/lib/elemental/agent"), h.disk)
	if err != nil {
		h.t.Fatal(err)
	}
	h.files, h.disk.left = files, powerFor
}

func (h *host) installer() *installation.Installer {
	return &installation.Installer{
		Record: installation.Record{Files: h.files}, Root: h.root, Disk: h.disk, Commands: h, Host: h, Clock: h,
		Log: slog.New(slog.NewTextHandler(&h.log, nil)),
	}
}

// stage unpacks a bundle with changed files; a blank one is left out.
func (h *host) stage(version string, changes map[string]string) installation.Staged {
	h.t.Helper()
	files := contents(version)
	maps.Copy(files, changes)
	m := bundle.Manifest{Format: bundle.Format, KubernetesVersion: version, Architecture: "amd64"}
	folder := h.t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		if content == "" {
			continue
		}
		kind, rest, _ := strings.Cut(name, "/")
		f := bundle.File{Name: name, Kind: bundle.KindFile, Path: "/" + rest, Mode: 0o644, Size: int64(len(content)), SHA256: digest(content)}
		switch kind {
		case "bin":
			f.Kind, f.Path, f.Mode = bundle.KindProgram, "/usr/local/bin/"+rest, 0o755
		case "cni":
			f.Kind, f.Path, f.Mode = bundle.KindProgram, "/opt/cni/bin/"+rest, 0o755
		case "opt":
			f.Kind, f.Path, f.Mode = bundle.KindProgram, "/opt/bin/"+rest, 0o755
		case "units":
			f.Kind, f.Path = bundle.KindUnit, "/etc/systemd/system/"+rest
		case "images":
			f.Kind, f.Path = bundle.KindImage, ""
		}
		m.Files = append(m.Files, f)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := m.Check(bundle.DefaultLimits()); err != nil {
		h.t.Fatal(err)
	}
	return installation.Staged{SHA256: digest(version), Folder: folder, Manifest: m}
}

func (h *host) install(staged installation.Staged) error {
	return h.installer().Install(h.t.Context(), staged, func(string) {})
}

func (h *host) write(name, content string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(h.root, name)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.root, name), []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) read(name string) string {
	data, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		return ""
	}
	return string(data)
}

// wants is the folder of enabled units.
const wants = "/etc/systemd/system/multi-user.target.wants"

// enable makes a link, as systemctl does, which is not durable.
func (h *host) enable(unit string) {
	h.t.Helper()
	name := filepath.Join(h.root, wants, unit)
	if err := os.Symlink("/etc/systemd/system/"+unit, name); err != nil && !errors.Is(err, fs.ErrExist) {
		h.t.Fatal(err)
	}
	h.disk.names[name] = true
	delete(h.disk.links, name)
}

// disable removes the link.
func (h *host) disable(unit string) {
	h.t.Helper()
	name := filepath.Join(h.root, wants, unit)
	if err := os.Remove(name); err == nil && !h.disk.names[name] {
		h.disk.links[name] = true
	}
}

// tree has the files and folders of the host, apart from the agent's state and /run.
func (h *host) tree() map[string]string {
	h.t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(h.root, func(name string, entry fs.DirEntry, err error) error {
		relative := strings.TrimPrefix(name, h.root)
		switch {
		case err != nil:
			return err
		case relative == "/run" || relative == "/var/lib/elemental":
			return fs.SkipDir
		case entry.IsDir():
			found[relative] = ""
		default:
			info, err := entry.Info()
			if err != nil {
				return err
			}
			found[relative] = fmt.Sprintf("%v %s", info.Mode().Perm(), h.read(relative))
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// checkInstalled compares the host with a bundle.
func (h *host) checkInstalled(what string, staged installation.Staged) {
	h.t.Helper()
	for _, f := range staged.Manifest.Files {
		if f.Kind == bundle.KindImage {
			continue
		}
		info, err := os.Stat(filepath.Join(h.root, f.Path))
		if err != nil || info.Mode() != fs.FileMode(f.Mode) || digest(h.read(f.Path)) != f.SHA256 {
			h.t.Errorf("%s: %s is not installed: %v", what, f.Path, err)
		}
	}
}

// checkBare expects the host as it was before.
func (h *host) checkBare(what string) {
	h.t.Helper()
	now := h.tree()
	for name, content := range now {
		if former, was := h.before[name]; !was || former != content {
			h.t.Errorf("%s: left %s", what, name)
		}
	}
	for name := range h.before {
		if _, is := now[name]; !is {
			h.t.Errorf("%s: removed %s", what, name)
		}
	}
	if left, err := (installation.Record{Files: h.files}).Leftovers(h.t.Context()); err != nil || len(left) > 0 {
		h.t.Errorf("%s: leftovers %v, %v", what, left, err)
	}
}

// Run implements oscommand.Runner.
func (h *host) Run(ctx context.Context, _ string, args ...string) (string, error) {
	line := strings.ReplaceAll(strings.Join(args, " "), h.root, "")
	if h.disk.left == 0 {
		return "", errPower
	}
	if _, limited := ctx.Deadline(); !limited {
		h.t.Errorf("%s runs without a limit", line)
	}
	h.ran = append(h.ran, line)
	if h.fails[line] {
		return "", fmt.Errorf("running %s: exit status 1", line)
	}
	h.onRun(line)
	return h.property(line), ctx.Err()
}

// property answers for systemctl show.
func (h *host) property(line string) string {
	words := strings.Fields(line)
	unit := words[len(words)-1]
	switch {
	case strings.Contains(line, " UnitFileState ") && h.isEnabled(unit):
		return "enabled\n"
	case strings.Contains(line, " ActiveState ") && h.active[unit]:
		return "active\n"
	default:
		return "\n"
	}
}

func (h *host) isEnabled(unit string) bool {
	_, err := os.Lstat(filepath.Join(h.root, wants, unit))
	return err == nil
}

// Kubernetes implements installation.Host.
func (h *host) Kubernetes(ctx context.Context) (protocol.Kubernetes, error) {
	return h.found, ctx.Err()
}

// Origin implements installation.Host.
func (h *host) Origin(_ context.Context, name string) protocol.Origin {
	if origin, known := h.origins[name]; known {
		return origin
	}
	return protocol.OriginOther
}

// RemoveContainerd implements installation.Host.
func (h *host) RemoveContainerd(context.Context) error {
	if h.disk.left == 0 {
		return errPower
	}
	h.ran = append(h.ran, "remove containerd's data")
	return os.RemoveAll(filepath.Join(h.root, "/var/lib/containerd"))
}

func (h *host) Now() time.Time { return h.now }

func (h *host) Wait(ctx context.Context, d time.Duration) error {
	h.now = h.now.Add(d)
	return ctx.Err()
}
