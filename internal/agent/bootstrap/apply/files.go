package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
)

// fileStep replaces the content of a file as a whole.
type fileStep struct {
	label, path string
	// user and group are names; "" leaves what the file has.
	user, group string
	// uid and gid are used instead of names when they are not nil.
	uid, gid      *int
	mode, dirMode fs.FileMode
	// keepMode leaves the mode of a file that exists.
	keepMode bool
	// compute makes the new content of the old; old is nil and exists false
	// for a new file.
	compute func(old []byte, exists bool) []byte
	// appends is set where computing on a result would change it again.
	appends bool
}

func (s fileStep) name() string { return s.label }

// target is the file's place behind all links, and what is there, or nil.
func (s fileStep) target(h *host) (string, fs.FileInfo, error) {
	target, err := h.resolve(s.path)
	if err != nil {
		return "", nil, err
	}
	info, err := h.stat(target)
	if err == nil && info != nil && info.IsDir() {
		err = fmt.Errorf("writing file %s: it is a directory", s.path)
	}
	return target, info, err
}

// special are files that have no content of their own to replace or to keep.
func special(target string, info fs.FileInfo) bool {
	return info != nil && !info.Mode().IsRegular() || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/")
}

func (s fileStep) prepare(_ context.Context, h *host, in *Intent) error {
	target, info, err := s.target(h)
	if err != nil {
		return err
	}
	if special(target, info) {
		return nil
	}
	var old []byte
	if info != nil {
		in.Existed = true
		if old, err = h.read(target); err != nil {
			return err
		}
	}
	in.Base, in.Want = digest(old), digest(s.compute(old, info != nil))
	return h.keep(target, info, old)
}

// keep records what is about to be made or replaced, once per path.
func (h *host) keep(target string, info fs.FileInfo, old []byte) error {
	m := h.manifest()
	h.keepDirs(filepath.Dir(target))
	if m.knows(target) {
		return nil
	}
	if info == nil {
		m.Files = append(m.Files, target)
		return nil
	}
	backup := filepath.Join("backup", fmt.Sprintf("%04d", len(m.Replaced)))
	if err := os.MkdirAll(filepath.Join(h.opts.Dir, "backup"), 0o700); err != nil {
		return fmt.Errorf("making the directory for copies of replaced files: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(h.opts.Dir, backup), old, 0o600); err != nil {
		return fmt.Errorf("keeping a copy of %s: %w", target, err)
	}
	uid, gid := owner(info)
	if err := durable.SyncDir(h.opts.Dir); err != nil {
		return err
	}
	m.Replaced = append(m.Replaced, Replaced{Path: target, Backup: backup, Mode: info.Mode() & modeMask, UID: uid, GID: gid})
	return nil
}

// keepDirs records the directories that are missing on the way to dir.
func (h *host) keepDirs(dir string) {
	var missing []string
	for d := dir; d != "/" && !h.exists(d); d = filepath.Dir(d) {
		missing = append([]string{d}, missing...)
	}
	for _, d := range missing {
		h.manifest().Dirs = add(h.manifest().Dirs, d)
	}
}

func owner(info fs.FileInfo) (uid, gid int) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), int(stat.Gid)
	}
	return 0, 0
}

func (s fileStep) execute(ctx context.Context, h *host, in *Intent) error {
	_, info, err := s.target(h)
	if err != nil {
		return err
	}
	uid, gid, err := s.owners(h, info)
	if err != nil {
		return err
	}
	if s.keepMode && info != nil {
		s.mode = info.Mode() & modeMask
	}
	return s.write(ctx, h, in, uid, gid)
}

func (s fileStep) write(ctx context.Context, h *host, in *Intent, uid, gid int) error {
	target, info, err := s.target(h)
	if err != nil {
		return err
	}
	if err := h.mkdirs(filepath.Dir(target), s.dirMode, 0, 0); err != nil {
		return err
	}
	if special(target, info) {
		return writeThrough(h.real(target), s.compute(nil, false), s.appends)
	}
	old, err := h.read(target)
	if err != nil {
		return err
	}
	content := old
	if now := digest(old); now != in.Want || info == nil {
		content = s.compute(old, info != nil)
		if s.appends && now != in.Base {
			// Somebody else changed the file since the intent was saved.
			in.Base, in.Want = now, digest(content)
			if err := h.save(); err != nil {
				return err
			}
		}
	}
	if err := h.replace(target, content, s.mode, uid, gid); err != nil {
		return err
	}
	return h.relabel(ctx, target)
}

// owners looks the owner up by name. A new file without a name belongs to root.
func (s fileStep) owners(h *host, info fs.FileInfo) (uid, gid int, err error) {
	if info != nil {
		uid, gid = owner(info)
	}
	if s.user != "" {
		u, err := h.user(s.user)
		if err != nil {
			return 0, 0, err
		}
		if u == nil {
			return 0, 0, fmt.Errorf("writing file %s: there is no user %q", s.path, s.user)
		}
		uid = u.uid
	}
	if s.group != "" {
		g, err := h.group(s.group)
		if err != nil {
			return 0, 0, err
		}
		if g == nil {
			return 0, 0, fmt.Errorf("writing file %s: there is no group %q", s.path, s.group)
		}
		gid = g.gid
	}
	if s.uid != nil {
		uid = *s.uid
	}
	if s.gid != nil {
		gid = *s.gid
	}
	return uid, gid, nil
}

// replace writes a file as a whole, or in place where something is mounted on
// it.
func (h *host) replace(target string, content []byte, mode fs.FileMode, uid, gid int) error {
	path := h.real(target)
	attributes := func(name string) error {
		if err := h.opts.Chown(name, uid, gid); err != nil {
			return fmt.Errorf("setting the owner: %w", err)
		}
		return os.Chmod(name, mode)
	}
	err := durable.Write(path, content, func(f *os.File) error { return attributes(f.Name()) })
	if errors.Is(err, syscall.EBUSY) {
		err = writeThrough(path, content, false)
		if err == nil {
			err = attributes(path)
		}
	}
	if err != nil {
		return fmt.Errorf("writing file %s: %w", target, err)
	}
	return nil
}

func writeThrough(path string, content []byte, appends bool) error {
	flags := os.O_WRONLY | os.O_TRUNC
	if appends {
		flags = os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// mkdirs makes a directory and those above it, durably. Owner and mode are set
// on the ones that are new.
func (h *host) mkdirs(dir string, mode fs.FileMode, uid, gid int) error {
	if dir == "/" || h.exists(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := h.mkdirs(parent, mode, uid, gid); err != nil {
		return err
	}
	path := h.real(dir)
	// Renamed into place, so that it never has the wrong mode or owner there.
	temporary := durable.Temporary(path)
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what an interrupted bootstrap left: %w", err)
	}
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return fmt.Errorf("making directory %s: %w", dir, err)
	}
	err := errors.Join(h.opts.Chown(temporary, uid, gid), os.Chmod(temporary, mode))
	if err := errors.Join(err, os.Rename(temporary, path)); err != nil {
		return fmt.Errorf("making directory %s: %w", dir, err)
	}
	return durable.SyncDir(h.real(parent))
}

// relabel gives a new file the SELinux label of its place, where there is
// SELinux.
func (h *host) relabel(ctx context.Context, target string) error {
	if !h.exists("/sys/fs/selinux/enforce") || h.program("restorecon") == "" {
		return nil
	}
	return h.run(ctx, "restorecon", target)
}
