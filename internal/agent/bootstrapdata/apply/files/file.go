package files

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// File is the step that replaces the content of a file as a whole.
type File struct {
	Label, Path string
	// User and Group are names; "" keeps the owner of the file.
	User, Group string
	// UID and GID are used instead of names when they are not nil.
	UID, GID      *int
	Mode, DirMode fs.FileMode
	// keepMode keeps the mode of a file that exists.
	keepMode bool
	// Compute returns the new content. For a new file old is nil and exists false.
	Compute func(old []byte, exists bool) []byte
	// appends is true if Compute must not be applied to its own result.
	appends bool
}

// Title implements step.Step.
func (s File) Title() string { return s.Label }

// target returns the path with all links resolved, and the file there or nil.
func (s File) target(h *host.Host) (string, fs.FileInfo, error) {
	target, err := h.Resolve(s.Path)
	if err != nil {
		return "", nil, err
	}
	info, err := h.Stat(target)
	if err == nil && info != nil && info.IsDir() {
		err = fmt.Errorf("writing file %s: it is a directory", s.Path)
	}
	return target, info, err
}

// special reports whether a file is a device or the like, or a kernel setting below
// /proc or /sys. Its content cannot be replaced or copied.
func special(target string, info fs.FileInfo) bool {
	return info != nil && !info.Mode().IsRegular() || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/")
}

// Prepare implements step.Step.
func (s File) Prepare(_ context.Context, e *step.Execution, in *journal.Intent) error {
	target, info, err := s.target(e.Host)
	if err != nil {
		return err
	}
	if special(target, info) {
		return nil
	}
	var old []byte
	if info != nil {
		in.Existed = true
		if old, err = e.Read(target); err != nil {
			return err
		}
	}
	in.Base, in.Want = host.Digest(old), host.Digest(s.Compute(old, info != nil))
	return e.RecordFile(target, info, old)
}

// Execute implements step.Step.
func (s File) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	_, info, err := s.target(e.Host)
	if err != nil {
		return err
	}
	uid, gid, err := s.owners(e.Host, info)
	if err != nil {
		return err
	}
	if s.keepMode && info != nil {
		s.Mode = info.Mode() & host.ModeMask
	}
	return s.Write(ctx, e, in, uid, gid)
}

// Write writes the file for an owner that is already looked up.
func (s File) Write(ctx context.Context, e *step.Execution, in *journal.Intent, uid, gid int) error {
	target, info, err := s.target(e.Host)
	if err != nil {
		return err
	}
	if err := e.MakeDirs(filepath.Dir(target), s.DirMode, 0, 0); err != nil {
		return err
	}
	if special(target, info) {
		return host.WriteInPlace(e.RealPath(target), s.Compute(nil, false), s.appends)
	}
	old, err := e.Read(target)
	if err != nil {
		return err
	}
	content := old
	if now := host.Digest(old); now != in.Want || info == nil {
		content = s.Compute(old, info != nil)
		if s.appends && now != in.Base {
			// The file changed after the intent was saved.
			in.Base, in.Want = now, host.Digest(content)
			if err := e.Save(); err != nil {
				return err
			}
		}
	}
	if err := e.Replace(target, content, s.Mode, uid, gid); err != nil {
		return err
	}
	return e.Relabel(ctx, target)
}

// owners returns the IDs of the owner. Without a name or ID a new file belongs to
// root.
func (s File) owners(h *host.Host, info fs.FileInfo) (uid, gid int, err error) {
	if info != nil {
		uid, gid = host.Owner(info)
	}
	if s.User != "" {
		u, err := h.User(s.User)
		if err != nil {
			return 0, 0, err
		}
		if u == nil {
			return 0, 0, fmt.Errorf("writing file %s: there is no user %q", s.Path, s.User)
		}
		uid = u.UID
	}
	if s.Group != "" {
		g, err := h.Group(s.Group)
		if err != nil {
			return 0, 0, err
		}
		if g == nil {
			return 0, 0, fmt.Errorf("writing file %s: there is no group %q", s.Path, s.Group)
		}
		gid = g.GID
	}
	if s.UID != nil {
		uid = *s.UID
	}
	if s.GID != nil {
		gid = *s.GID
	}
	return uid, gid, nil
}
