package follow

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
)

// Write replaces the file as a whole, also if the power fails, and keeps its
// mode and owner. A file that somebody has changed or removed since Look stays
// as it is, which is an error.
func (n Node) Write(e Edit) error {
	err := durable.Replace(n.System, e.path, e.content, func(f durable.File) error {
		if err := keepOwner(f, e.former); err != nil {
			return err
		}
		if err := f.Chmod(e.former.Mode().Perm()); err != nil {
			return err
		}
		return e.unchanged()
	})
	if err != nil {
		return fmt.Errorf("pointing %s to the endpoint: %w", e.Name, err)
	}
	return nil
}

func (e Edit) unchanged() error {
	now, err := os.Lstat(e.path)
	if err != nil {
		return err
	}
	if !os.SameFile(now, e.former) || now.Size() != e.former.Size() || !now.ModTime().Equal(e.former.ModTime()) {
		return errors.New("somebody else has changed it meanwhile")
	}
	return nil
}

func keepOwner(f durable.File, former os.FileInfo) error {
	owned, can := f.(interface{ Chown(uid, gid int) error })
	stat, ok := former.Sys().(*syscall.Stat_t)
	if !can || !ok {
		return nil
	}
	return owned.Chown(int(stat.Uid), int(stat.Gid))
}
