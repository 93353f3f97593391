package step

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// RecordFile records a file before it is made or replaced, once per path. old is the
// content to copy; info is nil for a new file.
func (e *Execution) RecordFile(target string, info fs.FileInfo, old []byte) error {
	m := e.Manifest()
	e.RecordMissingDirs(filepath.Dir(target))
	if m.Has(target) {
		return nil
	}
	if info == nil {
		m.Files = append(m.Files, target)
		return nil
	}
	backup := filepath.Join("backup", fmt.Sprintf("%04d", len(m.Replaced)))
	if err := os.MkdirAll(filepath.Join(e.Dir, "backup"), 0o700); err != nil {
		return fmt.Errorf("making the directory for copies of replaced files: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(e.Dir, backup), old, 0o600); err != nil {
		return fmt.Errorf("keeping a copy of %s: %w", target, err)
	}
	uid, gid := host.Owner(info)
	if err := durable.SyncDir(e.Dir); err != nil {
		return err
	}
	m.Replaced = append(m.Replaced, journal.Replaced{Path: target, Backup: backup, Mode: info.Mode() & host.ModeMask, UID: uid, GID: gid})
	return nil
}

// RecordMissingDirs records dir and its parents that do not exist yet.
func (e *Execution) RecordMissingDirs(dir string) {
	var missing []string
	for d := dir; d != "/" && !e.Exists(d); d = filepath.Dir(d) {
		missing = append([]string{d}, missing...)
	}
	for _, d := range missing {
		e.Manifest().Dirs = journal.AddOnce(e.Manifest().Dirs, d)
	}
}
