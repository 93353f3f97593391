package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// Link is the step that makes a link.
type Link struct{ bootstrapdata.Link }

// Title implements step.Step.
func (s Link) Title() string { return "link " + s.Path }

// resolvePath returns the path of the link itself, with the links of its directory
// resolved.
func (s Link) resolvePath(h *host.Host) (string, fs.FileInfo, error) {
	dir, err := h.Resolve(filepath.Dir(s.Path))
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir, filepath.Base(s.Path))
	info, err := os.Lstat(h.RealPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("looking at %s: %w", s.Path, err)
	}
	return path, info, nil
}

// exists reports whether the wanted link exists.
func (s Link) exists(h *host.Host, path string, info fs.FileInfo) bool {
	if s.Hard {
		target, err := h.Stat(s.Target)
		return err == nil && target != nil && info != nil && os.SameFile(target, info)
	}
	to, err := os.Readlink(h.RealPath(path))
	return err == nil && to == s.Target
}

func (s Link) check(h *host.Host) error {
	path, info, err := s.resolvePath(h)
	switch {
	case err != nil:
		return err
	case info == nil || s.exists(h, path, info):
		return nil
	case info.IsDir():
		return fmt.Errorf("link %s: it is a directory, which is not removed on a running system", s.Path)
	case !s.Overwrite:
		return fmt.Errorf("link %s: there is a file of this name, and \"overwrite\" is not set", s.Path)
	}
	return nil
}

// Prepare implements step.Step.
func (s Link) Prepare(_ context.Context, e *step.Execution, in *journal.Intent) error {
	path, info, err := s.resolvePath(e.Host)
	if err != nil {
		return err
	}
	if in.Skip = s.exists(e.Host, path, info); in.Skip {
		return nil
	}
	if err := s.check(e.Host); err != nil {
		return err
	}
	if info == nil || info.Mode().IsRegular() {
		var old []byte
		if info != nil {
			if old, err = e.Read(path); err != nil {
				return err
			}
		}
		return e.RecordFile(path, info, old)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("link %s: it is neither a file nor a link, and is not replaced", s.Path)
	}
	to, err := os.Readlink(e.RealPath(path))
	if err != nil {
		return fmt.Errorf("looking at %s: %w", s.Path, err)
	}
	if m := e.Manifest(); !m.Has(path) {
		m.Links = append(m.Links, journal.ReplacedLink{Path: path, Target: to})
	}
	return nil
}

// Execute implements step.Step.
func (s Link) Execute(_ context.Context, e *step.Execution, _ *journal.Intent) error {
	path, info, err := s.resolvePath(e.Host)
	if err != nil || s.exists(e.Host, path, info) {
		return err
	}
	if err := e.MakeDirs(filepath.Dir(path), 0o755, 0, 0); err != nil {
		return err
	}
	if !s.Hard {
		return e.Symlink(s.Target, path)
	}
	target, err := e.Resolve(s.Target)
	if err != nil {
		return err
	}
	return e.PutLink(path, func(temporary string) error { return os.Link(e.RealPath(target), temporary) })
}
