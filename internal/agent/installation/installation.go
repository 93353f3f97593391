package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Units that an installation enables.
const (
	containerdUnit = "containerd.service"
	kubeletUnit    = "kubelet.service"
)

// containerdData is the folder of containerd's images and containers.
const containerdData = "/var/lib/containerd"

// Host is what an installation needs of the platform.
type Host interface {
	// Kubernetes returns the programs of Kubernetes on the host.
	Kubernetes(ctx context.Context) (protocol.Kubernetes, error)
	// Origin says who has installed a file.
	Origin(ctx context.Context, path string) protocol.Origin
	// RemoveContainerd removes the data of containerd, which does not run.
	RemoveContainerd(ctx context.Context) error
}

// Staged is a bundle that is unpacked on the disk.
type Staged struct {
	// SHA256 is the digest of the bundle.
	SHA256 string
	// Folder has the files of the manifest under their names.
	Folder   string
	Manifest bundle.Manifest
	// Replace sets files and units of the host aside that are in the way.
	Replace bool
}

// Installer installs and removes bundles. All fields are required. One goroutine at a time
// may use it.
type Installer struct {
	Record
	// Root stands for "/".
	Root     string
	Disk     Disk
	Commands oscommand.Runner
	Host     Host
	Clock    retry.Clock
	Log      *slog.Logger
}

// IsNeeded reports whether a bootstrap has to install a bundle first: the host lacks a
// program, its own are to be replaced, or an installation is incomplete or of another bundle.
func (i *Installer) IsNeeded(ctx context.Context, want protocol.Bundle) (bool, error) {
	at, err := i.document().Load()
	if err != nil || at.Phase != "" {
		return at.Phase != phaseInstalled || at.SHA256 != want.SHA256, err
	}
	found, err := i.programs(ctx)
	return want.Replace || !hasKubernetes(found) || found.ContainerRuntime.Path == "", err
}

func (i *Installer) programs(ctx context.Context) (protocol.Kubernetes, error) {
	found, err := i.Host.Kubernetes(ctx)
	if err != nil {
		return found, fmt.Errorf("looking for the programs of Kubernetes: %w", err)
	}
	return found, nil
}

// Install installs a bundle. It completes an installation of the same bundle that was
// interrupted, and removes one of another bundle first. It does nothing if the bundle is
// installed, or if the host lacks only a container runtime, which the bundle lacks too.
// progress is called with each step.
func (i *Installer) Install(ctx context.Context, staged Staged, progress func(step string)) error {
	at, err := i.document().Load()
	if err != nil || at.Phase == phaseInstalled && at.SHA256 == staged.SHA256 {
		return err
	}
	if at.Phase == phaseRemoving || at.Phase != "" && at.SHA256 != staged.SHA256 {
		i.Log.Info("Removing a former installation", "version", at.Version)
		if err := i.Remove(ctx); err != nil {
			return err
		}
		at = content{}
	}
	if at.Phase == "" {
		if at, err = i.plan(ctx, staged); err != nil || at.Phase == "" {
			return err
		}
		if err := i.document().Save(at); err != nil {
			return err
		}
	}
	if err := i.hideUnits(ctx, at); err != nil {
		return err
	}
	if err := i.copyFiles(ctx, staged, at, progress); err != nil {
		return err
	}
	if err := i.activate(ctx, staged, at, progress); err != nil {
		return err
	}
	// systemctl and ctr made nothing durable.
	i.Disk.Sync()
	at.Phase = phaseInstalled
	if err := i.document().Save(at); err != nil {
		return err
	}
	i.Log.Info("Installed a bundle", "version", at.Version, "sha256", at.SHA256, "files", len(at.Files))
	return nil
}

func (i *Installer) path(name string) string { return filepath.Join(i.Root, name) }

// exists reports whether there is anything at a path of this machine. What can't be looked at
// counts.
func (i *Installer) exists(path string) bool { return !errors.Is(i.Disk.Stat(path), fs.ErrNotExist) }

// copyFiles puts each file of the installation in its place that is not there.
func (i *Installer) copyFiles(ctx context.Context, staged Staged, at content, progress func(string)) error {
	progress("files")
	for _, folder := range at.Folders {
		if err := i.makeFolder(folder); err != nil {
			return err
		}
	}
	for _, f := range staged.Manifest.Files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		index := at.index(f.Path)
		if f.Kind == bundle.KindImage || index < 0 {
			continue
		}
		got, err := digest(i.path(f.Path))
		if err == nil && got == f.SHA256 {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			if err := i.setAside(at.Files[index]); err != nil {
				return err
			}
		}
		if err := copyFile(i.Disk, filepath.Join(staged.Folder, f.Name), i.path(f.Path), f.SHA256, fs.FileMode(f.Mode)); err != nil {
			return fmt.Errorf("installing %s: %w", f.Path, err)
		}
	}
	return nil
}

// makeFolder makes a folder durable.
func (i *Installer) makeFolder(name string) error {
	if err := i.Disk.MakeFolder(i.path(name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making a folder: %w", err)
	}
	return i.Disk.SyncDir(filepath.Dir(i.path(name)))
}
