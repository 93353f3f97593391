package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

// Undo takes back what a Manifest lists, in reverse order: units, mounts, files
// and links, users and groups, directories. Replaced files get their content, mode and
// owner back from the copies in opts.Dir, whoever changed them since;
// directories that were made go with all they hold by now, and stay as long as
// something is mounted in them.
//
// What is gone already is fine, so Undo can be repeated after a kill. It goes
// on after an error and returns all of them. opts needs Dir, Root, System and
// Chown only.
func Undo(ctx context.Context, m Manifest, opts Options) error {
	opts.Journal = nil
	h, err := newHost(opts)
	if err != nil {
		return err
	}
	errs := h.stopUnits(ctx, m)
	errs = append(errs, h.unmount(ctx, m)...)
	for _, r := range m.Replaced {
		errs = append(errs, h.restore(ctx, r))
	}
	for _, f := range slices.Backward(m.Files) {
		errs = append(errs, h.removeFile(f))
	}
	for _, l := range m.Links {
		errs = append(errs, h.symlink(l.Target, l.Path))
	}
	for _, d := range slices.Backward(m.Attributes) {
		if h.exists(d.Path) {
			errs = append(errs, h.attributes(d.Path, d.Mode, d.UID, d.GID))
		}
	}
	errs = append(errs, h.removeAccounts(ctx, m)...)
	for _, d := range slices.Backward(m.Dirs) {
		errs = append(errs, h.removeDir(d))
	}
	if m.HostName != "" {
		errs = append(errs, h.run(ctx, "hostname", m.HostName))
	}
	errs = append(errs, h.restoreUnits(ctx, m)...)
	for _, s := range m.Services {
		errs = append(errs, h.run(ctx, "systemctl", "reload-or-restart", s))
	}
	return errors.Join(errs...)
}

func (h *host) unmount(ctx context.Context, m Manifest) []error {
	var errs []error
	for _, point := range slices.Backward(m.Mounts) {
		mounted, err := h.firstFields("/proc/self/mounts", point, 1)
		if mounted && err == nil {
			err = h.run(ctx, "umount", point)
		}
		errs = append(errs, err)
	}
	for _, device := range m.Swaps {
		used, err := h.firstFields("/proc/swaps", device, 0)
		if used && err == nil {
			err = h.run(ctx, "swapoff", device)
		}
		errs = append(errs, err)
	}
	return errs
}

func (h *host) restore(ctx context.Context, r Replaced) error {
	content, err := os.ReadFile(filepath.Join(h.opts.Dir, r.Backup))
	if err != nil {
		return fmt.Errorf("restoring %s from its copy: %w", r.Path, err)
	}
	if err := h.mkdirs(filepath.Dir(r.Path), 0o755, 0, 0); err != nil {
		return err
	}
	if err := h.replace(r.Path, content, r.Mode, r.UID, r.GID); err != nil {
		return err
	}
	return h.relabel(ctx, r.Path)
}

func (h *host) removeFile(path string) error {
	var errs []error
	for _, p := range []string{h.real(path), durable.Temporary(h.real(path))} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, fmt.Errorf("removing %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

func (h *host) removeAccounts(ctx context.Context, m Manifest) []error {
	var errs []error
	for _, made := range slices.Backward(m.Users) {
		u, err := h.user(made.Name)
		if u != nil && err == nil {
			args := []string{"userdel", "--force"}
			if made.Home {
				args = append(args, "--remove")
				err = h.holdsNoMount(u.home)
			}
			if err == nil {
				err = h.run(ctx, append(args, made.Name)...)
			}
		}
		errs = append(errs, err)
	}
	for _, name := range slices.Backward(m.Groups) {
		g, err := h.group(name)
		if g != nil && err == nil {
			err = h.run(ctx, "groupdel", name)
		}
		errs = append(errs, err)
	}
	for _, name := range m.Locked {
		u, err := h.user(name)
		if u != nil && err == nil {
			err = h.run(ctx, "usermod", "--unlock", name)
		}
		errs = append(errs, err)
	}
	return errs
}

// holdsNoMount returns an error if something is mounted at a directory or below:
// what shows there is somebody else's, and is not deleted with the directory. A
// bind mount from the same file system has its number, so only the kernel's table
// tells.
func (h *host) holdsNoMount(dir string) error {
	points, err := mounts.Points(h.opts.Root)
	if err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	// A home may be written with a slash at its end, or be a link, which what removes
	// it may follow.
	place, err := h.resolve(dir)
	if err != nil {
		return err
	}
	if point, found := mounts.At(points, place); found {
		return fmt.Errorf("removing %s: %s is mounted; unmount it and reset again", dir, point)
	}
	return nil
}

// removeDir removes a directory and all below it, unless something is mounted
// there.
func (h *host) removeDir(path string) error {
	root := h.real(path)
	if err := os.Remove(durable.Temporary(root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what an interrupted bootstrap left: %w", err)
	}
	info, err := os.Lstat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !info.IsDir() {
		return err
	}
	if err := h.holdsNoMount(path); err != nil {
		return err
	}
	parent, err := os.Lstat(filepath.Dir(root))
	if err != nil {
		return fmt.Errorf("removing directory %s: %w", path, err)
	}
	return removeTree(root, device(parent))
}

func device(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Dev) //nolint:unconvert // its type differs between architectures
	}
	return 0
}

func removeTree(path string, on uint64) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if info.IsDir() {
		if device(info) != on {
			return fmt.Errorf("removing %s: something is mounted there; unmount it and reset again", path)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return fmt.Errorf("removing %s: %w", path, err)
		}
		var errs []error
		for _, e := range entries {
			errs = append(errs, removeTree(filepath.Join(path, e.Name()), on))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}
