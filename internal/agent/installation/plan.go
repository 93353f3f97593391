package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxConflicts bounds how many files an error names.
const maxConflicts = 3

// planner decides what belongs to an installation.
type planner struct {
	*Installer

	staged Staged
	// found are the programs of the host.
	found     protocol.Kubernetes
	at        content
	conflicts []string
}

// plan decides what belongs to the installation. A file that is there with the same content
// is used, and stays when the installation is removed. The content is empty if there is
// nothing to install.
func (i *Installer) plan(ctx context.Context, staged Staged) (content, error) {
	found, err := i.programs(ctx)
	if err != nil {
		return content{}, err
	}
	p := &planner{Installer: i, staged: staged, found: found}
	p.at = content{Phase: phaseInstalling, SHA256: staged.SHA256, Version: staged.Manifest.KubernetesVersion}
	if !staged.Replace && hasKubernetes(found) {
		if _, brought := staged.Manifest.Program("containerd"); !brought {
			i.Log.Info("Installed nothing: the host lacks only a container runtime, and the bundle has none", "sha256", staged.SHA256)
			return content{}, nil
		}
		p.at.KeptKubernetes = true
	}
	for _, f := range staged.Manifest.Files {
		if ctx.Err() != nil {
			return content{}, context.Cause(ctx)
		}
		if f.Kind == bundle.KindImage || p.isLeftOut(f) {
			continue
		}
		if err := p.place(ctx, f); err != nil {
			return content{}, err
		}
	}
	if len(p.conflicts) > 0 {
		return content{}, p.conflict()
	}
	slices.Sort(p.at.Folders)
	p.at.Folders = slices.Compact(p.at.Folders)
	if slices.Contains(p.at.Units, containerdUnit) {
		if p.at.Containerd, err = isEmpty(i.path(containerdData)); err != nil {
			return content{}, err
		}
	}
	return p.at, p.readHidden(ctx)
}

// hasKubernetes reports whether the host has what kubeadm needs of Kubernetes itself.
func hasKubernetes(found protocol.Kubernetes) bool {
	return found.Kubelet.Path != "" && found.Kubeadm.Path != ""
}

// isLeftOut reports whether the host keeps its own file instead: the programs of Kubernetes,
// what belongs to the kubelet's unit, and its CNI plugins.
func (p *planner) isLeftOut(f bundle.File) bool {
	if !p.at.KeptKubernetes {
		return false
	}
	switch base := path.Base(f.Path); f.Kind {
	case bundle.KindProgram:
		plugin, hasPlugins := p.staged.Manifest.Program("loopback")
		isPlugin := hasPlugins && path.Dir(plugin.Path) == path.Dir(f.Path)
		return slices.Contains(bundle.Required(), base) || isPlugin && p.found.CNIPlugins.Path != ""
	case bundle.KindUnit:
		return base == kubeletUnit || path.Base(path.Dir(f.Path)) == kubeletUnit+".d"
	default:
		return false
	}
}

// place adds a file to the installation, unless the host has the same, or has something in
// the way. A folder that can't be written to is an error.
func (p *planner) place(ctx context.Context, f bundle.File) error {
	got, err := digest(p.path(f.Path))
	isThere := !errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil && got == f.SHA256:
		if p.staged.Replace && f.Kind == bundle.KindUnit && !isDropIn(f.Path) {
			// Its program may be another one.
			p.at.Hidden = append(p.at.Hidden, hiddenUnit{Name: path.Base(f.Path)})
		}
		return nil
	case isThere && !p.staged.Replace:
		p.conflicts = append(p.conflicts, f.Path+", "+owner(p.Host.Origin(ctx, f.Path)))
		return nil
	case isThere:
		if why := p.obstacle(ctx, f.Path); why != "" {
			p.conflicts = append(p.conflicts, f.Path+", "+why)
			return nil
		}
	}
	if folder := p.existingFolder(f.Path); p.Disk.IsReadOnly(p.path(folder)) {
		return fmt.Errorf("nothing was installed, because %s is on a file system that can't be written to, and %s belongs there: "+
			"build a bundle with another path for it, such as one below files/opt/bin for a program", folder, f.Path)
	}
	p.at.Files = append(p.at.Files, file{Path: f.Path, SHA256: []string{f.SHA256}, Aside: isThere})
	p.at.Folders = append(p.at.Folders, p.missingFolders(f.Path)...)
	if f.Kind != bundle.KindUnit || isDropIn(f.Path) {
		return nil
	}
	unit := path.Base(f.Path)
	p.at.Units = append(p.at.Units, unit)
	other := p.otherUnit(f.Path)
	switch {
	case other != "" && !p.staged.Replace:
		p.conflicts = append(p.conflicts, other+", "+owner(p.Host.Origin(ctx, other)))
	case other != "" && !hides(f.Path, other):
		p.conflicts = append(p.conflicts, other+", which systemd prefers to "+f.Path)
	case other != "" || isThere:
		p.at.Hidden = append(p.at.Hidden, hiddenUnit{Name: unit})
	}
	return nil
}

// conflict returns the error for files that are in the way.
func (p *planner) conflict() error {
	more, advice := "", "leave them out of the bundle, or have them replaced (spec.programs of the ElementalMachineTemplate)"
	if left := len(p.conflicts) - maxConflicts; left > 0 {
		more = fmt.Sprintf("; and %d more", left)
	}
	if p.staged.Replace {
		advice = "or leave them out of the bundle"
	}
	return fmt.Errorf("nothing was installed, because files are in the way: %s%s: remove them from the host, %s",
		strings.Join(p.conflicts[:min(len(p.conflicts), maxConflicts)], "; "), more, advice)
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

// unitFolders are the folders of units; systemd prefers earlier ones.
func unitFolders() []string { return []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} }

// otherUnit returns a file of the host with the unit's name, which the unit would hide, or be
// hidden by.
func (i *Installer) otherUnit(name string) string {
	for _, folder := range unitFolders() {
		other := path.Join(folder, "systemd/system", path.Base(name))
		if other != name && i.exists(i.path(other)) {
			return other
		}
	}
	return ""
}

// hasUnit reports whether any folder has a unit.
func (i *Installer) hasUnit(name string) bool { return i.otherUnit(name) != "" }

// hides reports whether systemd prefers a unit to another one of the same name.
func hides(name, other string) bool {
	rank := func(name string) int {
		return slices.IndexFunc(unitFolders(), func(folder string) bool { return strings.HasPrefix(name, folder+"/systemd/system/") })
	}
	return rank(name) < rank(other)
}

// isDropIn reports whether a file extends a unit.
func isDropIn(name string) bool { return strings.HasSuffix(path.Dir(name), ".d") }

// existingFolder returns the innermost folder above a file that exists.
func (i *Installer) existingFolder(name string) string {
	folder := path.Dir(name)
	for folder != "/" && !i.exists(i.path(folder)) {
		folder = path.Dir(folder)
	}
	return folder
}

// missingFolders returns the folders above a file that do not exist.
func (i *Installer) missingFolders(name string) (missing []string) {
	for folder := path.Dir(name); folder != "/"; folder = path.Dir(folder) {
		if err := i.Disk.Stat(i.path(folder)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, folder)
		}
	}
	return missing
}
