// Package controlplane halts, starts and restarts the control plane that kubeadm has set up on a host.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

const (
	kubeletUnit = "kubelet.service"
	// unitTimeout is how long systemd may take: 90 seconds to stop a unit, by default.
	unitTimeout  = 2 * time.Minute
	pollInterval = time.Second
	// endTimeout is how long programs may take to end. After killAfter they are killed.
	endTimeout = 90 * time.Second
	killAfter  = 45 * time.Second
	// startTimeout is longer than the kubelet waits before it starts a container that failed often.
	startTimeout = 6 * time.Minute
)

// programs are those of the static Pods of a control plane, each before those that need it. kube-vip
// goes, too: clients must not be led to a control plane that stands still.
func programs() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-vip"}
}

// Kill sends a signal to a process.
func Kill(pid int, signal syscall.Signal) error { return syscall.Kill(pid, signal) }

// Host is the control plane of this host. All fields but Root are required.
type Host struct {
	// Root replaces "/".
	Root string
	// Commands runs systemctl.
	Commands oscommand.Runner
	Cluster  cluster.Client
	// Signal sends a signal to a process.
	Signal func(pid int, signal syscall.Signal) error
	Clock  retry.Clock
}

// Halt stops the kubelet, and ends the programs of the control plane. Without the kubelet
// nothing starts them again. To have the kubelet end them does not work: one that has not seen
// an API server since its start ends no static Pod whose manifest is gone.
func (h Host) Halt(ctx context.Context) error {
	if err := h.systemctl(ctx, "stop", kubeletUnit); err != nil {
		return fmt.Errorf("stopping the kubelet: %w", err)
	}
	return h.end(ctx, func() ([]int, error) { return h.running(programs()...) })
}

// Restart ends a program of the control plane, and returns when the kubelet has started it again.
func (h Host) Restart(ctx context.Context, program string) error {
	former, err := h.running(program)
	if err != nil {
		return err
	}
	isFormer := func(pid int) bool { return slices.Contains(former, pid) }
	if err := h.end(ctx, func() ([]int, error) {
		pids, err := h.running(program)
		return slices.DeleteFunc(pids, func(pid int) bool { return !isFormer(pid) }), err
	}); err != nil {
		return fmt.Errorf("restarting %s: %w", program, err)
	}
	for began := h.Clock.Now(); ; {
		pids, err := h.running(program)
		if err != nil || len(pids) > 0 {
			return err
		}
		if h.Clock.Now().Sub(began) >= startTimeout {
			return fmt.Errorf("the kubelet did not start %s again within %s: see journalctl --unit kubelet", program, startTimeout)
		}
		if err := h.Clock.Wait(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// end ends programs of the control plane until pending returns none.
func (h Host) end(ctx context.Context, pending func() ([]int, error)) error {
	began := h.Clock.Now()
	for signal := syscall.SIGTERM; ; {
		pids, err := pending()
		if err != nil || len(pids) == 0 {
			return err
		}
		lasted := h.Clock.Now().Sub(began)
		if lasted >= endTimeout {
			return fmt.Errorf("%d programs of the control plane did not end within %s", len(pids), endTimeout)
		}
		if lasted >= killAfter {
			signal = syscall.SIGKILL
		}
		for _, pid := range pids {
			if err := h.Signal(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending process %d of the control plane: %w", pid, err)
			}
		}
		if err := h.Clock.Wait(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// Start starts the kubelet, which starts the static Pods whose manifests it has.
func (h Host) Start(ctx context.Context) error {
	// A unit that failed often may refuse to start.
	_ = h.systemctl(ctx, "reset-failed", kubeletUnit)
	if err := h.systemctl(ctx, "restart", kubeletUnit); err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	return nil
}

// Ready returns an error unless etcd and the API server of this host are well.
func (h Host) Ready(ctx context.Context) error {
	member, found, err := etcd.Local(h.Root)
	if err != nil {
		return err
	}
	if !found {
		return errors.New("there is no manifest of etcd")
	}
	member.Dial = h.Cluster.Dial
	if err := etcd.Health(ctx, member.Options); err != nil {
		return err
	}
	_, err = h.Cluster.LocalServer(ctx)
	return err
}

// running returns the processes of these programs in containers of Pods.
func (h Host) running(programs ...string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(h.Root, "/proc"))
	if err != nil {
		return nil, fmt.Errorf("looking for programs of the control plane: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process may end at any time, and has no files then. That of a zombie is empty.
		command, _ := os.ReadFile(filepath.Join(h.Root, "/proc", entry.Name(), "cmdline"))
		group, _ := os.ReadFile(filepath.Join(h.Root, "/proc", entry.Name(), "cgroup"))
		program, _, _ := bytes.Cut(command, []byte{0})
		if slices.Contains(programs, filepath.Base(string(program))) && bytes.Contains(group, []byte("kubepods")) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (h Host) systemctl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	_, err := h.Commands.Run(ctx, "", append([]string{"systemctl"}, args...)...)
	return err
}
