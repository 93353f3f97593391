package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/controlplane"
)

// host is a machine with processes. It is the clock and the oscommand.Runner too.
type host struct {
	t        *testing.T
	root     string
	now      time.Time
	commands []string
	signals  []string
	// ends says which signal ends a process; none: it stays.
	ends map[int]syscall.Signal
	// onWait is called when somebody waits; it may be nil.
	onWait func()
}

func (h *host) Now() time.Time { return h.now }

func (h *host) Wait(ctx context.Context, d time.Duration) error {
	h.now = h.now.Add(d)
	if h.onWait != nil {
		h.onWait()
	}
	return ctx.Err()
}

func (h *host) Run(_ context.Context, _ string, args ...string) (string, error) {
	h.commands = append(h.commands, strings.Join(args, " "))
	return "", nil
}

func (h *host) signal(pid int, signal syscall.Signal) error {
	if text := fmt.Sprintf("%s %d", signal, pid); !slices.Contains(h.signals, text) {
		h.signals = append(h.signals, text)
	}
	if h.ends[pid] != signal {
		return nil
	}
	return os.RemoveAll(filepath.Join(h.root, "proc", fmt.Sprint(pid)))
}

func (h *host) process(pid int, command, group string, end syscall.Signal) {
	h.t.Helper()
	folder := filepath.Join(h.root, "proc", fmt.Sprint(pid))
	err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "cmdline"), []byte(command), 0o600),
		os.WriteFile(filepath.Join(folder, "cgroup"), []byte(group), 0o600))
	if err != nil {
		h.t.Fatal(err)
	}
	h.ends[pid] = end
}

func newHost(t *testing.T) (*host, controlplane.Host) {
	t.Helper()
	h := &host{t: t, root: t.TempDir(), ends: map[int]syscall.Signal{}}
	return h, controlplane.Host{Root: h.root, Commands: h, Signal: h.signal, Clock: h}
}

const pod = "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n"

// The kubelet is stopped first, then the programs of the control plane end, and nothing else
// does.
func TestHalt(t *testing.T) {
	h, c := newHost(t)
	h.process(10, "etcd\x00--name=a", pod, syscall.SIGTERM)
	h.process(11, "/usr/local/bin/kube-apiserver\x00--secure-port=6443", pod, syscall.SIGKILL)
	h.process(12, "etcd\x00", "0::/system.slice/etcd.service\n", 0)
	h.process(13, "nginx\x00etcd", pod, 0)
	if err := c.Halt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"systemctl stop kubelet.service"}; !slices.Equal(h.commands, want) {
		t.Errorf("the commands were %q", h.commands)
	}
	if want := []string{"terminated 10", "terminated 11", "killed 11"}; !slices.Equal(h.signals, want) {
		t.Errorf("the signals were %q", h.signals)
	}
}

func TestHaltOfAProgramThatStays(t *testing.T) {
	h, c := newHost(t)
	h.process(10, "etcd\x00--name=a", pod, 0)
	if err := c.Halt(t.Context()); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("got %v", err)
	}
}

func TestStart(t *testing.T) {
	h, c := newHost(t)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"systemctl reset-failed kubelet.service", "systemctl restart kubelet.service"}; !slices.Equal(h.commands, want) {
		t.Errorf("the commands were %q", h.commands)
	}
	if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no manifest of etcd") {
		t.Errorf("got %v", err)
	}
}

// A program that is ended has been started again before Restart returns, and no other is ended.
func TestRestart(t *testing.T) {
	h, c := newHost(t)
	h.process(10, "etcd\x00--name=a", pod, syscall.SIGTERM)
	h.process(11, "kube-apiserver\x00--secure-port=6443", pod, syscall.SIGTERM)
	h.onWait = func() {
		if _, ends := h.ends[20]; !ends && h.now.Sub(time.Time{}) > 10*time.Second {
			h.process(20, "kube-apiserver\x00", pod, 0)
		}
	}
	if err := c.Restart(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"terminated 11"}; !slices.Equal(h.signals, want) || len(h.commands) > 0 {
		t.Errorf("the signals were %q, the commands %q", h.signals, h.commands)
	}
	if waited := h.now.Sub(time.Time{}); waited < 10*time.Second {
		t.Errorf("Restart returned after %s, before the program ran again", waited)
	}
}

func TestRestartOfAProgramThatStaysAway(t *testing.T) {
	h, c := newHost(t)
	h.process(10, "etcd\x00--name=a", pod, syscall.SIGTERM)
	if err := c.Restart(t.Context(), "etcd"); err == nil || !strings.Contains(err.Error(), "did not start etcd again") {
		t.Errorf("got %v", err)
	}
}
