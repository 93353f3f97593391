package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// Time limits of an installation.
const (
	commandTimeout = time.Minute
	importTimeout  = 10 * time.Minute
	runtimeWait    = time.Minute
	runtimePoll    = 500 * time.Millisecond
)

// defaultSocket is containerd's, if it is not configured.
const defaultSocket = "/run/containerd/containerd.sock"

// activate makes the installed files effective. It may be repeated.
func (i *Installer) activate(ctx context.Context, staged Staged, at content, progress func(string)) error {
	progress("units")
	if err := i.run(ctx, commandTimeout, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	i.applyKernelSettings(ctx, staged.Manifest)
	if hasUnit(staged.Manifest, containerdUnit) {
		if err := i.run(ctx, commandTimeout, "systemctl", "enable", containerdUnit); err != nil {
			return err
		}
		if err := i.run(ctx, commandTimeout, "systemctl", "start", containerdUnit); err != nil {
			return fmt.Errorf("%w: see journalctl --unit containerd", err)
		}
	}
	if err := i.importImages(ctx, staged, progress); err != nil {
		return err
	}
	if at.KeptKubernetes {
		return nil
	}
	if err := i.run(ctx, commandTimeout, "systemctl", "enable", kubeletUnit); err != nil {
		return fmt.Errorf("%w: put a unit of the kubelet into the bundle", err)
	}
	if staged.Replace {
		return i.checkStarted(ctx, staged)
	}
	return nil
}

func hasUnit(m bundle.Manifest, name string) bool {
	for _, f := range m.Files {
		if f.Kind == bundle.KindUnit && filepath.Base(f.Path) == name {
			return true
		}
	}
	return false
}

// applyKernelSettings loads the modules and sets the parameters that the bundle's files
// name, by the services that do so at boot. They also apply the host's other files, which a
// bundle must not fail for; kubeadm checks what it needs.
func (i *Installer) applyKernelSettings(ctx context.Context, m bundle.Manifest) {
	for _, setting := range []struct{ folder, unit string }{
		{"/etc/modules-load.d/", "systemd-modules-load.service"}, {"/etc/sysctl.d/", "systemd-sysctl.service"},
	} {
		for _, f := range m.Files {
			if !strings.HasPrefix(f.Path, setting.folder) {
				continue
			}
			if err := i.run(ctx, commandTimeout, "systemctl", "restart", setting.unit); err != nil {
				i.Log.Warn("Could not apply the settings of the bundle for the kernel", "error", err)
			}
			break
		}
	}
}

// importImages waits for containerd if the bundle brings it or has images for it, and
// imports these.
func (i *Installer) importImages(ctx context.Context, staged Staged, progress func(string)) error {
	var images []string
	for _, f := range staged.Manifest.Files {
		if f.Kind == bundle.KindImage {
			images = append(images, f.Name)
		}
	}
	if len(images) == 0 && !hasUnit(staged.Manifest, containerdUnit) {
		return nil
	}
	found, err := i.Host.Kubernetes(ctx)
	if err != nil {
		return fmt.Errorf("looking for the container runtime: %w", err)
	}
	socket := cmp.Or(found.ContainerRuntime.Socket, defaultSocket)
	progress("containerd")
	if err := i.awaitSocket(ctx, socket); err != nil {
		return err
	}
	ctr := "ctr"
	if f, ok := staged.Manifest.Program(ctr); ok {
		ctr = f.Path
	}
	for n, name := range images {
		progress(fmt.Sprintf("image %d of %d", n+1, len(images)))
		if err := i.run(ctx, importTimeout, ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", filepath.Join(staged.Folder, name)); err != nil {
			return fmt.Errorf("importing %s: %w", name, err)
		}
	}
	return nil
}

// awaitSocket waits until containerd serves its socket.
func (i *Installer) awaitSocket(ctx context.Context, socket string) error {
	deadline := i.Clock.Now().Add(runtimeWait)
	for i.Disk.Stat(i.path(socket)) != nil {
		if !i.Clock.Now().Before(deadline) {
			return fmt.Errorf("containerd did not serve %s within %s: see journalctl --unit containerd", socket, runtimeWait)
		}
		if err := i.Clock.Wait(ctx, runtimePoll); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command with a time limit.
func (i *Installer) run(ctx context.Context, timeout time.Duration, args ...string) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := i.Commands.Run(limited, "", args...)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%s did not end within %s: %w", strings.Join(args[:2], " "), timeout, err)
	}
	return err
}
