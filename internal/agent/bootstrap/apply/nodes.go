package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
)

// directoryStep makes a directory, or changes the mode and owner of one.
type directoryStep struct{ bootstrap.Directory }

func (s directoryStep) name() string { return "directory " + s.Path }

func (s directoryStep) prepare(_ context.Context, h *host, in *Intent) error {
	target, err := h.resolve(s.Path)
	if err != nil {
		return err
	}
	info, err := h.stat(target)
	if err != nil {
		return err
	}
	m := h.manifest()
	if in.Existed = info != nil; in.Existed {
		uid, gid := owner(info)
		m.Attributes = append(m.Attributes, Replaced{Path: target, Mode: info.Mode() & modeMask, UID: uid, GID: gid})
		return nil
	}
	h.keepDirs(target)
	return nil
}

func (s directoryStep) execute(_ context.Context, h *host, in *Intent) error {
	target, err := h.resolve(s.Path)
	if err != nil {
		return err
	}
	info, err := h.stat(target)
	if err != nil {
		return err
	}
	names := fileStep{path: s.Path, user: s.User, group: s.Group, uid: s.UID, gid: s.GID}
	uid, gid, err := names.owners(h, info)
	if err != nil {
		return err
	}
	mode := s.Mode
	if in.Existed && s.KeepMode && info != nil {
		mode = info.Mode() & modeMask
	}
	if info == nil {
		if err := h.mkdirs(filepath.Dir(target), 0o755, 0, 0); err != nil {
			return err
		}
		return h.mkdirs(target, mode, uid, gid)
	}
	return h.attributes(target, mode, uid, gid)
}

// attributes sets mode and owner of what is there.
func (h *host) attributes(target string, mode fs.FileMode, uid, gid int) error {
	path := h.real(target)
	if err := errors.Join(h.opts.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
		return fmt.Errorf("setting mode and owner of %s: %w", target, err)
	}
	return nil
}

// linkStep makes a link.
type linkStep struct{ bootstrap.Link }

func (s linkStep) name() string { return "link " + s.Path }

// place is where the link itself is: behind the links of its directory.
func (s linkStep) place(h *host) (string, fs.FileInfo, error) {
	dir, err := h.resolve(filepath.Dir(s.Path))
	if err != nil {
		return "", nil, err
	}
	place := filepath.Join(dir, filepath.Base(s.Path))
	info, err := os.Lstat(h.real(place))
	if errors.Is(err, fs.ErrNotExist) {
		return place, nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("looking at %s: %w", s.Path, err)
	}
	return place, info, nil
}

// there tells whether the link is what it should be.
func (s linkStep) there(h *host, place string, info fs.FileInfo) bool {
	if s.Hard {
		target, err := h.stat(s.Target)
		return err == nil && target != nil && info != nil && os.SameFile(target, info)
	}
	to, err := os.Readlink(h.real(place))
	return err == nil && to == s.Target
}

func (s linkStep) check(h *host) error {
	place, info, err := s.place(h)
	switch {
	case err != nil:
		return err
	case info == nil || s.there(h, place, info):
		return nil
	case info.IsDir():
		return fmt.Errorf("link %s: it is a directory, which is not removed on a running system", s.Path)
	case !s.Overwrite:
		return fmt.Errorf("link %s: there is a file of this name, and \"overwrite\" is not set", s.Path)
	}
	return nil
}

func (s linkStep) prepare(_ context.Context, h *host, in *Intent) error {
	place, info, err := s.place(h)
	if err != nil {
		return err
	}
	if in.Skip = s.there(h, place, info); in.Skip {
		return nil
	}
	if err := s.check(h); err != nil {
		return err
	}
	if info == nil || info.Mode().IsRegular() {
		var old []byte
		if info != nil {
			if old, err = h.read(place); err != nil {
				return err
			}
		}
		return h.keep(place, info, old)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("link %s: it is neither a file nor a link, and is not replaced", s.Path)
	}
	to, err := os.Readlink(h.real(place))
	if err != nil {
		return fmt.Errorf("looking at %s: %w", s.Path, err)
	}
	if m := h.manifest(); !m.knows(place) {
		m.Links = append(m.Links, ReplacedLink{Path: place, Target: to})
	}
	return nil
}

func (s linkStep) execute(_ context.Context, h *host, _ *Intent) error {
	place, info, err := s.place(h)
	if err != nil || s.there(h, place, info) {
		return err
	}
	if err := h.mkdirs(filepath.Dir(place), 0o755, 0, 0); err != nil {
		return err
	}
	if !s.Hard {
		return h.symlink(s.Target, place)
	}
	target, err := h.resolve(s.Target)
	if err != nil {
		return err
	}
	return h.putLink(place, func(path string) error { return os.Link(h.real(target), path) })
}

func (h *host) symlink(target, place string) error {
	return h.putLink(place, func(path string) error { return os.Symlink(target, path) })
}

// putLink renames a link into place, so that there is always one.
func (h *host) putLink(place string, link func(path string) error) error {
	path := h.real(place)
	temporary := durable.Temporary(path)
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what an interrupted bootstrap left: %w", err)
	}
	if err := link(temporary); err != nil {
		return fmt.Errorf("making link %s: %w", place, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("making link %s: %w", place, err)
	}
	return durable.SyncDir(filepath.Dir(path))
}
