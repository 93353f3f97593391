package software

import (
	"context"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// findTimeout bounds all programs that one Find runs.
	findTimeout = 30 * time.Second
	// versionTimeout is short, so that a kubelet that hangs does not look like one of a node.
	versionTimeout = 5 * time.Second
	// packageTimeout is for a package database on a slow disk.
	packageTimeout = 10 * time.Second
	// retryFirst is how long the first blank version or origin of a file is believed. A program
	// may only have been slow, because the host boots. Each further one is believed twice as
	// long, up to retryMax: a program that hangs costs versionTimeout each time.
	retryFirst = 10 * time.Second
	retryMax   = time.Hour
)

// Probe runs a program and returns what it prints, as oscommand.Probe does.
type Probe func(ctx context.Context, path string, args ...string) (stdout, stderr string, err error)

// Options configure a Finder.
type Options struct {
	// Root is the folder of the host's files, usually "/".
	Root string
	// Path lists the folders of programs, as PATH does.
	Path string
	// Commands asks the package databases.
	Commands oscommand.Runner
	// Probe runs the programs that were found; nil means oscommand.Probe.
	Probe Probe
	Clock retry.Clock
	// IsBundled reports whether a file came with a bundle that the agent has installed; nil
	// means that none did.
	IsBundled func(path string) bool
}

// Finder finds the programs of Kubernetes. Use New. It is safe for concurrent use.
type Finder struct {
	files    files
	packages packages
	probe    Probe
	clock    retry.Clock
	// isBundled is Options.IsBundled.
	isBundled func(path string) bool

	mu sync.Mutex
	// known are the results by path.
	known map[string]result
}

// result is what was found out about a file.
type result struct {
	file    identity
	version string
	origin  protocol.Origin
	// until is when the result is no longer believed; zero means as long as the file is the
	// same.
	until time.Time
	// believed is how long a blank result is believed.
	believed time.Duration
}

// New returns a Finder that knows nothing yet.
func New(o Options) *Finder {
	if o.Probe == nil {
		o.Probe = func(ctx context.Context, path string, args ...string) (stdout, stderr string, err error) {
			return oscommand.Probe(ctx, o.Clock, path, args...)
		}
	}
	if o.IsBundled == nil {
		o.IsBundled = func(string) bool { return false }
	}
	files := files{root: o.Root, path: o.Path}
	return &Finder{
		files: files, packages: packages{files: files, commands: o.Commands}, probe: o.Probe, clock: o.Clock, isBundled: o.IsBundled,
		known: map[string]result{},
	}
}

// Find returns the programs that the host has. A version or an origin that cannot be found
// out is blank. An error means that ctx ended.
func (f *Finder) Find(ctx context.Context) (protocol.Kubernetes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found := protocol.Kubernetes{
		Kubelet:          f.program(limited, kubelet()),
		Kubeadm:          f.program(limited, kubeadm()),
		Kubectl:          f.program(limited, kubectl()),
		ContainerRuntime: f.containerRuntime(limited),
		Runc:             f.program(limited, runc()),
		CNIPlugins:       f.cniPlugins(limited),
	}
	return found, context.Cause(ctx)
}

// program returns a program, or the zero value if the host does not have it.
func (f *Finder) program(ctx context.Context, p program) protocol.Program {
	path := f.files.program(p)
	if path == "" {
		return protocol.Program{}
	}
	found := f.examine(ctx, path, p)
	return protocol.Program{Path: path, Version: found.version, Origin: found.origin}
}

// examine returns what is known of the file, or finds it out.
func (f *Finder) examine(ctx context.Context, path string, p program) result {
	file, err := f.files.identify(path)
	if err != nil {
		return result{}
	}
	now := f.clock.Now()
	known := f.known[path]
	if known.file != file {
		known = result{}
	} else if known.until.IsZero() || now.Before(known.until) {
		return known
	}
	found := result{file: file, version: f.version(ctx, path, p), origin: f.Origin(ctx, path)}
	if ctx.Err() != nil {
		return found // a file that was not examined is examined the next time
	}
	if found.version == "" || found.origin == "" {
		found.believed = min(max(retryFirst, 2*known.believed), retryMax)
		found.until = now.Add(found.believed)
	}
	f.known[path] = found
	return found
}

func (f *Finder) version(ctx context.Context, path string, p program) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	stdout, stderr, _ := f.probe(ctx, f.files.onDisk(path), p.args...)
	return p.versionIn(stdout + "\n" + stderr)
}

// Origin says who has installed a file. It is blank if that cannot be found out.
func (f *Finder) Origin(ctx context.Context, path string) protocol.Origin {
	if f.isBundled(path) {
		return protocol.OriginBundle
	}
	ctx, cancel := context.WithTimeout(ctx, packageTimeout)
	defer cancel()
	return f.packages.origin(ctx, path)
}

// containerRuntime returns the runtime that a kubelet would use: one whose unit is enabled
// before one that is only installed.
func (f *Finder) containerRuntime(ctx context.Context) protocol.ContainerRuntime {
	for _, mustBeEnabled := range []bool{true, false} {
		for _, r := range runtimes() {
			if mustBeEnabled && !f.files.isEnabled(r.program.unit) {
				continue
			}
			if found := f.program(ctx, r.program); found.Path != "" {
				return protocol.ContainerRuntime{
					Name: r.name, Path: found.Path, Version: found.Version, Origin: found.Origin, Socket: f.files.socket(r),
				}
			}
		}
	}
	return protocol.ContainerRuntime{}
}

// cniPlugins returns the folder of the CNI plugins. The plugin loopback stands for all: each
// container runtime needs it.
func (f *Finder) cniPlugins(ctx context.Context) protocol.Program {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"} {
		plugin := loopback()
		path := dir + "/" + plugin.name
		if !f.files.isExecutable(path) {
			continue
		}
		found := f.examine(ctx, path, plugin)
		return protocol.Program{Path: dir, Version: found.version, Origin: found.origin}
	}
	return protocol.Program{}
}
