package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// Lab is a management cluster and hosts on this machine.
type Lab struct {
	*commands

	options  Options
	engine   *engine.Engine
	sources  sources
	progress *shell.Progress
	// managementName and managementNumber are those of the host that is the management cluster.
	managementName   string
	managementNumber int
	// firstHost is the number of the first host.
	firstHost int
}

// New returns a lab, without looking at or changing anything on the machine.
func New(options Options) (*Lab, error) {
	options, err := options.complete()
	if err != nil {
		return nil, fmt.Errorf("reading the lab's options: %w", err)
	}
	cache, err := toolset.CacheDir()
	if err != nil {
		return nil, err
	}
	progress := shell.NewProgress(options.Out)
	e := &engine.Engine{Lab: options.Name, Daemon: filepath.Join(cache, "dockerd"), Progress: progress}
	builder := toolset.Builder{
		Modules:  filepath.Join(options.Checkout, "test", "tools"),
		Cache:    cache,
		Progress: progress,
	}
	return &Lab{
		options:        options,
		engine:         e,
		progress:       progress,
		commands:       &commands{state: options.State, builder: builder},
		managementName: "management",
		firstHost:      1,
		sources: sources{
			checkout: options.Checkout,
			release:  options.Release,
			images: image.Builder{
				Checkout: options.Checkout,
				Cache:    filepath.Join(cache, "lab"),
				Engine:   e,
				Progress: progress,
				Tools:    builder,
			},
		},
	}, nil
}

// Second returns a lab with the same hosts and another management cluster, for moves from one to the
// other. It is a host of the lab, also if the first is made by kind. The first lab's Down removes it too.
func (l *Lab) Second() *Lab { return other(l, "second", "management-2", maxHosts+1) }

// other returns a lab with the same hosts and another management cluster. Its files are in a folder
// of the lab's state.
func other(l *Lab, folder, name string, number int) *Lab {
	options := l.options
	options.State, options.Management = filepath.Join(options.State, folder), ManagementHost
	return &Lab{
		options:          options,
		engine:           l.engine,
		progress:         l.progress,
		sources:          l.sources,
		commands:         &commands{state: options.State, builder: l.builder},
		managementName:   name,
		managementNumber: number,
		firstHost:        l.firstHost,
	}
}

// Release returns the version of this provider that Up installs, or nothing without a release.
func (l *Lab) Release() (version string, err error) {
	release, err := l.sources.findRelease()
	return release.version, err
}

// KubernetesVersion returns the version of Kubernetes on lab hosts.
func (l *Lab) KubernetesVersion(ctx context.Context) (string, error) {
	return l.sources.kubernetesVersion(ctx)
}

// Prepare makes Docker, the host image and the network ready. It starts no host.
func (l *Lab) Prepare(ctx context.Context) (hostImage string, err error) {
	if err := os.MkdirAll(l.options.State, 0o755); err != nil {
		return "", fmt.Errorf("making the state folder: %w", err)
	}
	if err := (kindCluster{l}).prepareRuntime(ctx); err != nil {
		return "", err
	}
	if err := l.engine.Prepare(ctx); err != nil {
		return "", fmt.Errorf("preparing Docker: %w", err)
	}
	if hostImage, err = l.sources.images.Host(ctx); err != nil {
		return "", fmt.Errorf("making the host image: %w", err)
	}
	return hostImage, l.engine.CreateNetwork(ctx, l.options.Name, l.options.Subnet, kindCluster{l}.networkFlags()...)
}

// Host returns the host with a number, starting at 1.
func (l *Lab) Host(number int) *engine.Host {
	return l.engine.Host(fmt.Sprintf("host-%d", number), hostAddress(l.options.Subnet, number))
}

// MachineAddress returns the address of this machine in the network of hosts.
func (l *Lab) MachineAddress() string { return address(l.options.Subnet, 1) }

// Hosts returns all hosts, without the management cluster.
func (l *Lab) Hosts() []*engine.Host {
	var hosts []*engine.Host
	for i := range l.options.Hosts {
		hosts = append(hosts, l.Host(l.firstHost+i))
	}
	return hosts
}

// StartHosts creates missing hosts, turns on hosts that are off, and waits until all have booted.
func (l *Lab) StartHosts(ctx context.Context, hostImage string) error {
	return l.progress.Step(fmt.Sprintf("Starting %d hosts", l.options.Hosts), func() error {
		return l.startHosts(ctx, hostImage)
	})
}

func (l *Lab) startHosts(ctx context.Context, hostImage string) error {
	hosts := l.Hosts()
	errs := make([]error, len(hosts))
	var group sync.WaitGroup
	for i, host := range hosts {
		group.Go(func() { errs[i] = l.startHost(ctx, host, l.firstHost+i, hostImage) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// startHost creates a host, or turns it on, and waits until it has booted.
func (l *Lab) startHost(ctx context.Context, host *engine.Host, number int, hostImage string) error {
	return l.ensureHost(ctx, host, hostImage, networkFiles(l.options.Subnet, number))
}

// ensureHost creates a host with files, or turns it on, and waits until it has booted.
func (l *Lab) ensureHost(ctx context.Context, host *engine.Host, hostImage string, files []engine.File) error {
	exists, err := host.Exists(ctx)
	if err != nil {
		return err
	}
	if exists {
		if err := host.Start(ctx); err != nil {
			return err
		}
		return host.WaitBooted(ctx)
	}
	if err := host.Create(ctx, hostImage, files...); err != nil {
		return err
	}
	return host.WaitBooted(ctx)
}

// Down removes everything the lab has on this machine except caches. The host images stay in
// Docker unless images is true. It also works after a crash, and does nothing if nothing is left.
func (l *Lab) Down(ctx context.Context, images bool) error {
	// After a crash of the machine the hosts exist, but the lab's dockerd does not run.
	if _, err := os.Stat(l.options.State); err == nil {
		if err := l.engine.Prepare(ctx); err != nil {
			return fmt.Errorf("preparing Docker: %w", err)
		}
	}
	if l.engine.Answers(ctx) {
		if err := l.progress.Step("Removing hosts and network", func() error { return l.clean(ctx, images) }); err != nil {
			return err
		}
	}
	if err := l.engine.Stop(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(l.options.State); err != nil {
		return fmt.Errorf("removing the state folder: %w", err)
	}
	return nil
}

// clean removes the lab's objects in Docker.
func (l *Lab) clean(ctx context.Context, images bool) error {
	// Docker does not know that kind's node belongs to the lab.
	if err := (kindCluster{l}).node().Remove(ctx); err != nil {
		return err
	}
	if err := l.engine.Clean(ctx); err != nil {
		return err
	}
	if images {
		return l.sources.images.Remove(ctx)
	}
	return nil
}
