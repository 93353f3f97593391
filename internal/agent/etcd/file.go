package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/pace"
)

// ErrTooLarge is wrapped by the error of a snapshot that is larger than the caller permits.
var ErrTooLarge = errors.New("the snapshot is too large")

// SaveFile saves a snapshot to a file that only root can read, and makes it durable. The file
// appears under its name when it is complete. It is written slowly, so that it delays the member
// less, which waits for the same disk. SaveFile never writes more than limit bytes: its
// error for a larger snapshot wraps ErrTooLarge.
func SaveFile(ctx context.Context, o Options, system durable.System, path string, limit int64) (info Info, err error) {
	err = durable.Stream(system, path, func(f durable.File) error {
		info, err = Save(ctx, o, &bounded{to: pace.NewWriter(ctx, f), left: limit})
		return err
	})
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// bounded refuses to write more than a number of bytes.
type bounded struct {
	to   io.Writer
	left int64
}

func (b *bounded) Write(data []byte) (int, error) {
	if int64(len(data)) > b.left {
		return 0, ErrTooLarge
	}
	n, err := b.to.Write(data)
	b.left -= int64(n)
	return n, err
}

// DatabaseSize returns the size of the member's database, in bytes. A snapshot is hardly
// larger. root replaces "/".
func (m Member) DatabaseSize(root string) (int64, error) {
	info, err := os.Stat(filepath.Join(root, m.Data, "member/snap/db"))
	if err != nil {
		return 0, fmt.Errorf("looking at the database of etcd: %w", err)
	}
	return info.Size(), nil
}

// Authority returns the certificate of the authority of the members, PEM. All members of a
// cluster have it, and those of no other cluster. found is false if the host has none.
func Authority(root string) (certificate []byte, found bool, err error) {
	certificate, err = os.ReadFile(filepath.Join(root, authorityPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the certificate authority of etcd: %w", err)
	}
	return certificate, true, nil
}
