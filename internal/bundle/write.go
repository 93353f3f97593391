package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// window is how far back compressed data refers, in bytes. A reader needs several times as
// much memory, and refuses bundles with a larger one. Eight times the window makes a bundle of
// 108 MiB two percent smaller.
const window = 1 << 20

// Write writes a bundle. It opens each file of the manifest once, in order, and fails if a
// file is not as the manifest says. The same manifest and files make the same bytes.
// written is called after each file.
func Write(ctx context.Context, w io.Writer, m Manifest, l Limits, open func(File) (io.ReadCloser, error), written func(File)) (err error) {
	if err := m.Check(l); err != nil {
		return fmt.Errorf("checking the manifest: %w", err)
	}
	data, err := m.Encode()
	if err != nil {
		return err
	}
	if int64(len(data)) > l.ManifestBytes {
		return fmt.Errorf("the manifest has %d bytes, and the limit is %d: put fewer files into the bundle", len(data), l.ManifestBytes)
	}
	// More than one goroutine may cut the data into other blocks each time.
	compressor, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
		zstd.WithWindowSize(window), zstd.WithEncoderCRC(true))
	if err != nil {
		return fmt.Errorf("setting up the compression: %w", err)
	}
	defer func() { err = errors.Join(err, compressor.Close()) }()
	archive := tar.NewWriter(compressor)
	if err := writeEntry(archive, ManifestName, 0o644, int64(len(data)), bytes.NewReader(data)); err != nil {
		return err
	}
	for _, f := range m.Files {
		if err := writeFile(ctx, archive, f, open); err != nil {
			return err
		}
		written(f)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}

func writeFile(ctx context.Context, archive *tar.Writer, f File, open func(File) (io.ReadCloser, error)) (err error) {
	source, err := open(f)
	if err != nil {
		return fmt.Errorf("opening %s: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	return writeEntry(archive, f.Name, f.Mode, f.Size, newContent(contextReader{ctx, source}, f))
}

func writeEntry(archive *tar.Writer, name string, mode Mode, size int64, content io.Reader) error {
	if err := archive.WriteHeader(newHeader(name, mode, size)); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	if _, err := io.Copy(archive, content); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

// newHeader returns the only header that an entry may have: no owner and no time.
func newHeader(name string, mode Mode, size int64) *tar.Header {
	return &tar.Header{
		Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: size, ModTime: time.Unix(0, 0),
	}
}
