package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Reader reads a bundle as a stream. After an error all calls return the same error.
type Reader struct {
	decompressor *zstd.Decoder
	archive      *archive
}

// NewReader reads the manifest of a bundle. Reading ends when the context ends. The caller
// must close the Reader.
func NewReader(ctx context.Context, r io.Reader, l Limits) (*Reader, error) {
	// One goroutine decompresses, in constant memory.
	decompressor, err := zstd.NewReader(contextReader{ctx, r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, fmt.Errorf("reading the bundle: %w", err)
	}
	archive, err := newArchive(decompressor, l)
	if err != nil {
		decompressor.Close()
		return nil, fmt.Errorf("reading the bundle: %w", withAdvice(err))
	}
	return &Reader{decompressor: decompressor, archive: archive}, nil
}

// withAdvice says what to do about data that need more memory than a Reader has.
func withAdvice(err error) error {
	// A frame of one segment has a window as large as its content.
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return fmt.Errorf("it is compressed with a window of more than %d KiB: build it with the `bundle` of this version: %w", window>>10, err)
	}
	return err
}

// Manifest returns the manifest, which has been checked.
func (r *Reader) Manifest() Manifest { return r.archive.manifest }

// Next returns the next file of the manifest and its content. The content is right only
// if it was read to io.EOF; Next reads what was left of the previous one. Next returns
// io.EOF when the bundle is complete and has nothing else in it.
func (r *Reader) Next() (File, io.Reader, error) { return r.archive.next() }

// Close releases memory. It does not close what the bundle is read from.
func (r *Reader) Close() { r.decompressor.Close() }
