package files

import (
	"context"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// Directory is the step that makes a directory or changes its mode and owner.
type Directory struct{ bootstrapdata.Directory }

// Title implements step.Step.
func (s Directory) Title() string { return "directory " + s.Path }

// Prepare implements step.Step.
func (s Directory) Prepare(_ context.Context, e *step.Execution, in *journal.Intent) error {
	target, err := e.Resolve(s.Path)
	if err != nil {
		return err
	}
	info, err := e.Stat(target)
	if err != nil {
		return err
	}
	m := e.Manifest()
	if in.Existed = info != nil; in.Existed {
		uid, gid := host.Owner(info)
		m.Attributes = append(m.Attributes, journal.Replaced{Path: target, Mode: info.Mode() & host.ModeMask, UID: uid, GID: gid})
		return nil
	}
	e.RecordMissingDirs(target)
	return nil
}

// Execute implements step.Step.
func (s Directory) Execute(_ context.Context, e *step.Execution, in *journal.Intent) error {
	target, err := e.Resolve(s.Path)
	if err != nil {
		return err
	}
	info, err := e.Stat(target)
	if err != nil {
		return err
	}
	names := File{Path: s.Path, User: s.User, Group: s.Group, UID: s.UID, GID: s.GID}
	uid, gid, err := names.owners(e.Host, info)
	if err != nil {
		return err
	}
	mode := s.Mode
	if in.Existed && s.KeepMode && info != nil {
		mode = info.Mode() & host.ModeMask
	}
	if info == nil {
		if err := e.MakeDirs(filepath.Dir(target), 0o755, 0, 0); err != nil {
			return err
		}
		return e.MakeDirs(target, mode, uid, gid)
	}
	return e.SetAttributes(target, mode, uid, gid)
}
