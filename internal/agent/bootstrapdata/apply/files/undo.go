package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
)

// Restore restores a replaced file from its copy in dir.
func Restore(ctx context.Context, h *host.Host, dir string, r journal.Replaced) error {
	content, err := os.ReadFile(filepath.Join(dir, r.Backup))
	if err != nil {
		return fmt.Errorf("restoring %s from its copy: %w", r.Path, err)
	}
	if err := h.MakeDirs(filepath.Dir(r.Path), 0o755, 0, 0); err != nil {
		return err
	}
	if err := h.Replace(r.Path, content, r.Mode, r.UID, r.GID); err != nil {
		return err
	}
	return h.Relabel(ctx, r.Path)
}
