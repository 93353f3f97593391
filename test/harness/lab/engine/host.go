package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Host is one machine of the lab.
type Host struct {
	// Name is its host name.
	Name string
	// Address is the host's IPv4 address, which never changes.
	Address string

	engine *Engine
	// network is the network that has the address.
	network string
}

// File is a file to put on a host.
type File struct {
	Path    string
	Mode    int64
	Content []byte
}

// Host returns a handle of a host in the lab's network. The host need not exist.
func (e *Engine) Host(name, address string) *Host { return e.HostIn(e.Lab, name, address) }

// HostIn is Host for a host in another network.
func (e *Engine) HostIn(network, name, address string) *Host {
	return &Host{Name: name, Address: address, engine: e, network: network}
}

// Container returns the name of the host's container.
func (h *Host) Container() string { return h.engine.Lab + "-" + h.Name }

// Exists reports whether the host exists, on or off. It looks at no other host: one that is
// being created at the same time can be listed before Docker can describe it.
func (h *Host) Exists(ctx context.Context) (bool, error) {
	id, err := h.engine.Docker(ctx, "ps", "--all", "--quiet", "--filter", "name=^"+h.Container()+"$")
	if err != nil {
		return false, fmt.Errorf("looking for host %s: %w", h.Name, err)
	}
	return id != "", nil
}

// Create creates the host from an image, writes files to its disk and starts it. The container
// restarts whenever systemd ends, so a reboot inside works like that of a machine: the disk
// (container and /var) is kept, /run and /tmp are new.
func (h *Host) Create(ctx context.Context, image string, files ...File) error {
	flags, err := Privileges()
	if err != nil {
		return err
	}
	args := slices.Concat([]string{
		"create", "--name", h.Container(), "--hostname", h.Name, "--label", Label + "=" + h.engine.Lab,
		"--network", h.network, "--ip", h.Address, "--restart", "unless-stopped", "--stop-signal", "SIGRTMIN+3",
		"--log-opt", "max-size=5m", "--volume", "/var", "--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec",
	}, flags, []string{image})
	// Docker completes a started request, so a cancelled one could create the host after Clean.
	if _, err := h.engine.Docker(context.WithoutCancel(ctx), args...); err != nil {
		return fmt.Errorf("creating host %s: %w", h.Name, err)
	}
	if err := h.Put(ctx, files...); err != nil {
		return err
	}
	return h.Start(ctx)
}

// Join adds an interface in another network to the host, which makes it a router. It does
// nothing if the host has one.
func (h *Host) Join(ctx context.Context, network, address string) error {
	format := `{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}`
	joined, err := h.engine.Docker(ctx, "inspect", "--format", format, h.Container())
	if err != nil {
		return fmt.Errorf("looking at host %s: %w", h.Name, err)
	}
	if slices.Contains(strings.Fields(joined), network) {
		return nil
	}
	if _, err := h.engine.Docker(ctx, "network", "connect", "--ip", address, network, h.Container()); err != nil {
		return fmt.Errorf("connecting host %s to %s: %w", h.Name, network, err)
	}
	return nil
}

// Put writes files to the host's disk and creates folders as needed. The host may be off. Files
// under /run and /tmp are lost at the next start, because they are not on the disk.
func (h *Host) Put(ctx context.Context, files ...File) error {
	if len(files) == 0 {
		return nil
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		header := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Size: int64(len(f.Content)), ModTime: time.Now()}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("packing files for host %s: %w", h.Name, err)
		}
		if _, err := w.Write(f.Content); err != nil {
			return fmt.Errorf("packing files for host %s: %w", h.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("packing files for host %s: %w", h.Name, err)
	}
	_, err := shell.Command{Args: []string{"docker", "cp", "-", h.Container() + ":/"}, Stdin: &archive}.Run(ctx)
	if err != nil {
		return fmt.Errorf("putting files on host %s: %w", h.Name, err)
	}
	return nil
}

// Copy copies a file of this machine to a folder on the host's disk, which it creates.
func (h *Host) Copy(ctx context.Context, file, folder string) error {
	if _, err := h.Exec(ctx, "mkdir", "--parents", folder); err != nil {
		return err
	}
	if _, err := h.engine.Docker(ctx, "cp", "--quiet", file, h.Container()+":"+folder+"/"); err != nil {
		return fmt.Errorf("copying %s to host %s: %w", file, h.Name, err)
	}
	return nil
}

// Exec runs a program on the host and returns its output.
func (h *Host) Exec(ctx context.Context, args ...string) (string, error) {
	out, err := h.engine.Docker(ctx, append([]string{"exec", h.Container()}, args...)...)
	if err != nil {
		return out, fmt.Errorf("on host %s: %w", h.Name, err)
	}
	return out, nil
}

// ExecInput is Exec with input for the program.
func (h *Host) ExecInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	args = append([]string{"docker", "exec", "--interactive", h.Container()}, args...)
	out, err := shell.Command{Args: args, Stdin: stdin}.Run(ctx)
	if err != nil {
		return out, fmt.Errorf("on host %s: %w", h.Name, err)
	}
	return out, nil
}

// Start turns the host on. It does nothing if the host is on.
func (h *Host) Start(ctx context.Context) error {
	if _, err := h.engine.Docker(ctx, "start", h.Container()); err != nil {
		return fmt.Errorf("starting host %s: %w", h.Name, err)
	}
	return nil
}

// Kill cuts the host's power. All processes end at once, and the host stays off until Start.
func (h *Host) Kill(ctx context.Context) error {
	if _, err := h.engine.Docker(ctx, "kill", h.Container()); err != nil {
		return fmt.Errorf("killing host %s: %w", h.Name, err)
	}
	return nil
}

// Remove removes the host with its disk. It does nothing if there is no such host.
func (h *Host) Remove(ctx context.Context) error {
	if _, err := h.engine.Docker(ctx, "rm", "--force", "--volumes", h.Container()); err != nil {
		return fmt.Errorf("removing host %s: %w", h.Name, err)
	}
	return nil
}

// Disconnect takes the host's network link down. Processes on the host continue.
func (h *Host) Disconnect(ctx context.Context) error {
	if _, err := h.Exec(ctx, "ip", "link", "set", "eth0", "down"); err != nil {
		return fmt.Errorf("disconnecting: %w", err)
	}
	return nil
}

// Connect undoes Disconnect.
func (h *Host) Connect(ctx context.Context) error {
	if _, err := h.Exec(ctx, "ip", "link", "set", "eth0", "up"); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	// Taking a link down drops its routes; the unit restores them.
	if _, err := h.Exec(ctx, "systemctl", "restart", "lab-network.service"); err != nil {
		return fmt.Errorf("restoring routes: %w", err)
	}
	return nil
}

// Running reports whether the host is on.
func (h *Host) Running(ctx context.Context) (bool, error) {
	out, err := h.engine.Docker(ctx, "inspect", "--format", "{{.State.Running}}", h.Container())
	if err != nil {
		return false, fmt.Errorf("looking at host %s: %w", h.Name, err)
	}
	return out == "true", nil
}

// BootID returns an ID that differs for each boot.
func (h *Host) BootID(ctx context.Context) (string, error) {
	return h.Exec(ctx, "cat", "/run/lab-boot-id")
}

// WaitBooted waits until systemd on the host has started everything.
func (h *Host) WaitBooted(ctx context.Context) error {
	for {
		// A failed unit makes the state "degraded", which is as booted as "running".
		out, err := h.Exec(ctx, "sh", "-c", "systemctl is-system-running || true")
		if err == nil && (out == "running" || out == "degraded") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for host %s to boot (%s): %w", h.Name, out, context.Cause(ctx))
		case <-time.After(300 * time.Millisecond):
		}
	}
}
