package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"slices"
	"strings"

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

// maxConflicts bounds how many files an error names.
const maxConflicts = 3

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

// IsNeeded reports whether a bootstrap has to install a bundle first: the host lacks
// kubelet or kubeadm, or an installation is incomplete or of another bundle.
func (i *Installer) IsNeeded(ctx context.Context, sha256 string) (bool, error) {
	at, err := i.document().Load()
	if err != nil || at.Phase != "" {
		return at.Phase != phaseInstalled || at.SHA256 != sha256, err
	}
	found, err := i.Host.Kubernetes(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for the programs of Kubernetes: %w", err)
	}
	return found.Kubelet.Path == "" || found.Kubeadm.Path == "", nil
}

// owner describes who has installed a file.
func owner(origin protocol.Origin) string {
	switch origin {
	case protocol.OriginPackage:
		return "which a package of the operating system owns"
	case protocol.OriginOther:
		return "which no package owns"
	default:
		return "whose owner is unknown"
	}
}

// Install installs a bundle. It completes an installation of the same bundle that was
// interrupted, and removes one of another bundle first. It does nothing if the bundle is
// installed. progress is called with each step.
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
		if at, err = i.plan(ctx, staged); err != nil {
			return err
		}
		if err := i.document().Save(at); err != nil {
			return err
		}
	}
	if err := i.copyFiles(ctx, staged, at, progress); err != nil {
		return err
	}
	if err := i.activate(ctx, staged, progress); err != nil {
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

// plan decides what belongs to the installation. A file that is there with the same content
// is used, and stays when the installation is removed.
func (i *Installer) plan(ctx context.Context, staged Staged) (content, error) {
	at := content{Phase: phaseInstalling, SHA256: staged.SHA256, Version: staged.Manifest.KubernetesVersion}
	var conflicts []string
	for _, f := range staged.Manifest.Files {
		if f.Kind == bundle.KindImage {
			continue
		}
		got, err := digest(i.path(f.Path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			at.Files = append(at.Files, file{Path: f.Path, SHA256: []string{f.SHA256}})
			at.Folders = append(at.Folders, i.missingFolders(f.Path)...)
			if f.Kind == bundle.KindUnit && !isDropIn(f.Path) {
				at.Units = append(at.Units, path.Base(f.Path))
				if other := i.otherUnit(f.Path); other != "" {
					conflicts = append(conflicts, other+", "+owner(i.Host.Origin(ctx, other)))
				}
			}
		case ctx.Err() != nil:
			return content{}, context.Cause(ctx)
		case err != nil || got != f.SHA256:
			conflicts = append(conflicts, f.Path+", "+owner(i.Host.Origin(ctx, f.Path)))
		}
	}
	if len(conflicts) > 0 {
		more := ""
		if left := len(conflicts) - maxConflicts; left > 0 {
			more = fmt.Sprintf("; and %d more", left)
		}
		return content{}, fmt.Errorf("nothing was installed, because files are in the way: %s%s: remove them from the host, or leave them out of the bundle",
			strings.Join(conflicts[:min(len(conflicts), maxConflicts)], "; "), more)
	}
	slices.Sort(at.Folders)
	at.Folders = slices.Compact(at.Folders)
	if slices.Contains(at.Units, containerdUnit) {
		empty, err := isEmpty(i.path(containerdData))
		if err != nil {
			return content{}, err
		}
		at.Containerd = empty
	}
	return at, nil
}

// otherUnit returns a file of the host with the unit's name, which the unit would hide, or be
// hidden by.
func (i *Installer) otherUnit(name string) string {
	for _, folder := range []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} {
		other := path.Join(folder, "systemd/system", path.Base(name))
		if other != name && i.Disk.Stat(i.path(other)) == nil {
			return other
		}
	}
	return ""
}

// isDropIn reports whether a file extends a unit.
func isDropIn(name string) bool { return strings.HasSuffix(path.Dir(name), ".d") }

// missingFolders returns the folders above a file that do not exist.
func (i *Installer) missingFolders(name string) (missing []string) {
	for folder := path.Dir(name); folder != "/"; folder = path.Dir(folder) {
		if err := i.Disk.Stat(i.path(folder)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, folder)
		}
	}
	return missing
}

// copyFiles puts each file in its place that is not there.
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
		if f.Kind == bundle.KindImage {
			continue
		}
		got, err := digest(i.path(f.Path))
		switch {
		case err == nil && got == f.SHA256:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s has changed while the bundle was being installed: reset the host", f.Path)
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
