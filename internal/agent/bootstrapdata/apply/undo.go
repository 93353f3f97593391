package apply

import (
	"context"
	"errors"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/accounts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/storage"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/units"
)

// Undo reverts what a Manifest lists. It stops units, unmounts, restores replaced
// files, removes new files, restores links and attributes, removes accounts and
// directories, restores host name and units, and reloads services. Replaced files get
// their content, mode and owner from the copies in opts.Dir, even if they changed
// since. Directories that were made are removed with their content, unless something
// is mounted in them.
//
// Undo ignores what no longer exists, so it can be repeated after a kill. It continues
// after an error and returns all errors. It uses only Dir, Root, System and Chown of
// opts.
func Undo(ctx context.Context, m journal.Manifest, opts Options) error {
	h := newHost(opts)
	errs := units.Stop(ctx, h, m)
	errs = append(errs, storage.Unmount(ctx, h, m)...)
	for _, r := range m.Replaced {
		errs = append(errs, files.Restore(ctx, h, opts.Dir, r))
	}
	for _, f := range slices.Backward(m.Files) {
		errs = append(errs, h.RemoveFile(f))
	}
	for _, l := range m.Links {
		errs = append(errs, h.Symlink(l.Target, l.Path))
	}
	for _, d := range slices.Backward(m.Attributes) {
		if h.Exists(d.Path) {
			errs = append(errs, h.SetAttributes(d.Path, d.Mode, d.UID, d.GID))
		}
	}
	errs = append(errs, accounts.Remove(ctx, h, m)...)
	for _, d := range slices.Backward(m.Dirs) {
		errs = append(errs, h.RemoveDir(d))
	}
	if m.HostName != "" {
		errs = append(errs, h.Run(ctx, "hostname", m.HostName))
	}
	errs = append(errs, units.Restore(ctx, h, m)...)
	for _, s := range m.Services {
		errs = append(errs, h.Run(ctx, "systemctl", "reload-or-restart", s))
	}
	return errors.Join(errs...)
}

// Abort kills the units that an operation is starting. They would continue without
// the script that started them. A unit that ended meanwhile is no error.
func Abort(ctx context.Context, p journal.Progress, opts Options) error {
	if p.Current == nil || p.Current.Step != units.StartLabel {
		return nil
	}
	return units.Kill(ctx, newHost(opts), p.Manifest)
}

func newHost(opts Options) *host.Host { return host.New(opts.Root, opts.System, opts.Chown) }
