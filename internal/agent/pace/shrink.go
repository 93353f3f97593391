package pace

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// step is by how much a file shrinks at a time, in bytes.
const step = 16 << 20

// Shrink empties a file step by step, before it is removed: some file systems take long to free a
// large file, and other files wait meanwhile. It does nothing to a small file. The content is lost
// also after an error.
func Shrink(ctx context.Context, path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("opening a file to shrink it: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("looking at a file to shrink it: %w", err)
	}
	p := newPauses(ctx)
	for size := info.Size() - step; size > 0; size -= step {
		if err := f.Truncate(size); err != nil {
			return fmt.Errorf("shrinking a file: %w", err)
		}
		// The file system frees space when it commits.
		if err := f.Sync(); err != nil {
			return fmt.Errorf("shrinking a file: %w", err)
		}
		if err := p.pause(); err != nil {
			return err
		}
	}
	return nil
}
