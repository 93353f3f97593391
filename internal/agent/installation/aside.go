package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// hiddenUnit is a unit of the host whose place, or whose program, one of the bundle takes.
type hiddenUnit struct {
	Name string `json:"name"`
	// Enabled and Active are what it was before.
	Enabled bool `json:"enabled,omitempty"`
	Active  bool `json:"active,omitempty"`
}

// aside returns where a file of the host is kept while one of the bundle has its place. It is
// in the same folder, so that one rename moves it with all its attributes; nothing reads files
// with such a name.
func aside(name string) string {
	return filepath.Join(filepath.Dir(name), ".before-elemental-"+filepath.Base(name))
}

// obstacle says why a file can't be set aside; blank if it can. A package's next update would
// put its program back. Files in /etc are configuration, which package managers leave to the
// administrator.
func (p *planner) obstacle(ctx context.Context, name string) string {
	info, err := os.Lstat(p.path(name))
	if err != nil || !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		return "which is no file"
	}
	if p.exists(p.path(aside(name))) {
		return "for which an earlier installation has kept " + aside(name)
	}
	if origin := p.Host.Origin(ctx, name); origin != protocol.OriginOther && !strings.HasPrefix(name, "/etc/") {
		return owner(origin)
	}
	return ""
}

// setAside moves a file of the host out of the way, once.
func (i *Installer) setAside(f file) error {
	name := i.path(f.Path)
	if !f.Aside || i.exists(aside(name)) {
		return fmt.Errorf("%s has changed while the bundle was being installed: reset the host", f.Path)
	}
	if err := i.Disk.Rename(name, aside(name)); err != nil {
		return fmt.Errorf("setting %s aside: %w", f.Path, err)
	}
	return i.Disk.SyncDir(filepath.Dir(name))
}

// putBack moves a file of the host back to its place, unless somebody else has put one there.
func (i *Installer) putBack(f file) error {
	name := i.path(f.Path)
	if i.exists(name) {
		i.Log.Warn("Kept the former file aside, because somebody has changed the one of the bundle", "path", f.Path, "former", aside(f.Path))
		return nil
	}
	if err := i.Disk.Rename(aside(name), name); err != nil {
		return fmt.Errorf("putting the former file back: %w", err)
	}
	return i.Disk.SyncDir(filepath.Dir(name))
}

// readHidden records what the units are that the installation hides.
func (p *planner) readHidden(ctx context.Context) error {
	for n := range p.at.Hidden {
		unit := &p.at.Hidden[n]
		enabled, err := p.property(ctx, "UnitFileState", unit.Name)
		if err != nil {
			return err
		}
		active, err := p.property(ctx, "ActiveState", unit.Name)
		if err != nil {
			return err
		}
		unit.Enabled = enabled == "enabled"
		unit.Active = slices.Contains([]string{"active", "activating", "reloading"}, active)
	}
	return nil
}

func (i *Installer) property(ctx context.Context, property, unit string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	value, err := i.Commands.Run(limited, "", "systemctl", "show", "--property", property, "--value", unit)
	return strings.TrimSpace(value), err
}

// hideUnits stops the units that the installation hides: their processes are those of the
// programs that it replaces. It disables them, because a link to a hidden unit may start
// either.
func (i *Installer) hideUnits(ctx context.Context, at content) error {
	for _, unit := range at.Hidden {
		for _, verb := range []string{"stop", "disable"} {
			if err := i.run(ctx, commandTimeout, "systemctl", verb, unit.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// showUnits makes the units of the host what they were before an installation. The kubelet is
// not started: it starts at boot, and waits for kubeadm.
func (i *Installer) showUnits(ctx context.Context, at content) error {
	for _, unit := range at.Hidden {
		if !i.hasUnit(unit.Name) {
			continue // its package may be gone
		}
		if unit.Enabled {
			if err := i.run(ctx, commandTimeout, "systemctl", "enable", unit.Name); err != nil {
				return err
			}
		}
		if unit.Active && unit.Name != kubeletUnit {
			if err := i.run(ctx, commandTimeout, "systemctl", "start", unit.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkStarted returns an error unless the host starts the programs of the bundle: a drop-in of
// the host's unit, or a folder that comes earlier in PATH, may lead to others.
func (i *Installer) checkStarted(ctx context.Context, staged Staged) error {
	found, err := i.programs(ctx)
	if err != nil {
		return err
	}
	var others []string
	for name, starts := range map[string]string{
		"kubeadm": found.Kubeadm.Path, "kubelet": found.Kubelet.Path, "containerd": found.ContainerRuntime.Path,
	} {
		if f, ok := staged.Manifest.Program(name); ok && starts != f.Path {
			others = append(others, fmt.Sprintf("%s instead of %s", cmp.Or(starts, "no "+path.Base(f.Path)), f.Path))
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return errors.New("the host starts " + strings.Join(others, ", ") + ": put a unit that names the program into the bundle, and look for drop-ins of the host's unit")
}
