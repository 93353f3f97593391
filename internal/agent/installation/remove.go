package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// Remove removes what an installation put on the host. Files that somebody has changed
// since stay. It may be repeated, and does nothing on a host without an installation. The
// node must have been stopped.
func (i *Installer) Remove(ctx context.Context) error {
	at, err := i.document().Load()
	if err != nil || at.Phase == "" {
		return err
	}
	if at.Phase != phaseRemoving {
		at.Phase = phaseRemoving
		if err := i.document().Save(at); err != nil {
			return err
		}
	}
	if err := i.stopUnits(ctx, at); err != nil {
		return err
	}
	// systemctl made nothing durable. A unit whose file is gone can't be disabled.
	i.Disk.Sync()
	if at.Containerd {
		if err := i.Host.RemoveContainerd(ctx); err != nil {
			return fmt.Errorf("removing the data of containerd: %w", err)
		}
	}
	for _, f := range at.Files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := i.removeFile(f); err != nil {
			return fmt.Errorf("removing %s of a bundle: %w", f.Path, err)
		}
	}
	for _, folder := range slices.Backward(at.Folders) {
		// It fails, as it should, for a folder with content.
		if err := i.Disk.Remove(i.path(folder)); err == nil {
			if err := i.Disk.SyncDir(filepath.Dir(i.path(folder))); err != nil {
				return err
			}
		}
	}
	if err := i.run(ctx, commandTimeout, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	if err := i.showUnits(ctx, at); err != nil {
		return err
	}
	// Without the record nothing would remove what a power cut brings back.
	i.Disk.Sync()
	if err := i.Files.Remove(i.document().Name); err != nil {
		return fmt.Errorf("removing the record of an installation: %w", err)
	}
	i.Log.Info("Removed a bundle", "version", at.Version)
	return nil
}

// stopUnits stops and disables the units that the installation brought or hides.
func (i *Installer) stopUnits(ctx context.Context, at content) error {
	for _, unit := range slices.Backward(at.allUnits()) {
		// A unit whose file never got there can't be disabled.
		if !i.hasUnit(unit) {
			continue
		}
		// A template has no process of its own.
		if !strings.Contains(unit, "@.") {
			if err := i.run(ctx, commandTimeout, "systemctl", "stop", unit); err != nil {
				_ = i.run(ctx, commandTimeout, "systemctl", "kill", "--signal=KILL", unit)
				if err := i.run(ctx, commandTimeout, "systemctl", "stop", unit); err != nil {
					return err
				}
			}
		}
		if err := i.run(ctx, commandTimeout, "systemctl", "disable", unit); err != nil {
			return err
		}
	}
	return nil
}

// removeFile removes a file that is as the installation left it, and what an interrupted
// copy left beside it. It puts a file back that was set aside.
func (i *Installer) removeFile(f file) error {
	name := i.path(f.Path)
	if err := i.Disk.Remove(durable.Temporary(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.Aside && !i.exists(aside(name)) {
		return nil // the host's own file was never moved, or is back
	}
	switch {
	case f.isIn(name):
		if err := i.Disk.Remove(name); err != nil {
			return err
		}
		if err := i.Disk.SyncDir(filepath.Dir(name)); err != nil {
			return err
		}
	case i.exists(name) && !f.Aside:
		i.Log.Warn("Kept a file that came with a bundle, because somebody has changed it", "path", f.Path)
	}
	if f.Aside {
		return i.putBack(f)
	}
	return nil
}

// isIn reports whether a path has the file as the installation left it. What can't be read, such as
// a link, is not that file.
func (f file) isIn(path string) bool {
	got, err := digest(path)
	return err == nil && slices.Contains(f.SHA256, got)
}
