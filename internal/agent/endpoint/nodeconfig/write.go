package nodeconfig

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// Write replaces the file atomically, even if the power fails, and preserves
// its mode and owner. A file that was changed or removed since Find stays as it
// is, and Write returns an error.
func (h Host) Write(e Edit) error {
	err := durable.Replace(h.System, e.path, e.content, func(f durable.File) error {
		if err := copyOwner(f, e.original); err != nil {
			return err
		}
		if err := f.Chmod(e.original.Mode().Perm()); err != nil {
			return err
		}
		return e.checkUnchanged()
	})
	if err != nil {
		return fmt.Errorf("pointing %s to the endpoint: %w", e.Name, err)
	}
	return nil
}

func (e Edit) checkUnchanged() error {
	info, err := os.Lstat(e.path)
	if err != nil {
		return err
	}
	if !os.SameFile(info, e.original) || info.Size() != e.original.Size() || !info.ModTime().Equal(e.original.ModTime()) {
		return errors.New("another program has changed it in between")
	}
	return nil
}

func copyOwner(f durable.File, original os.FileInfo) error {
	owned, canChown := f.(interface{ Chown(uid, gid int) error })
	stat, ok := original.Sys().(*syscall.Stat_t)
	if !canChown || !ok {
		return nil
	}
	return owned.Chown(int(stat.Uid), int(stat.Gid))
}
