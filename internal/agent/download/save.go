package download

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// durableStep is how many bytes a power cut may lose of a download.
const durableStep = 16 << 20

// Save writes a body to a file, from an offset on, and makes it durable. What was read
// before an error remains, so that the next download continues there. accept is called
// before anything is written, when the file's folder exists; its error ends Save. saved is
// called with the number of bytes written, again and again.
func Save(disk Disk, path string, from int64, body io.Reader, accept func() error, saved func(n int64)) (err error) {
	f, err := disk.Create(path, from)
	if err != nil {
		return fmt.Errorf("keeping the download: %w", err)
	}
	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()
	if err := accept(); err != nil {
		return err
	}
	if err := disk.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("keeping the download: %w", err)
	}
	meter := &meter{File: f, saved: saved}
	for {
		_, err := io.CopyN(meter, body, durableStep)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return fmt.Errorf("keeping the download: %w", err)
		}
	}
}

// meter counts what is written to a file.
type meter struct {
	File

	saved func(n int64)
}

func (m *meter) Write(data []byte) (int, error) {
	n, err := m.File.Write(data)
	m.saved(int64(n))
	return n, err
}
