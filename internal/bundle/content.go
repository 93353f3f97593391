package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// ErrWrongDigest is wrapped by the error for a bundle that has another SHA-256 than the
// pinned one.
var ErrWrongDigest = errors.New("its SHA-256 is not the pinned one")

// ErrNotServed is wrapped by the error for a bundle that the manager does not serve yet, or not now.
// It says nothing about the bundle.
var ErrNotServed = errors.New("waiting for the manager to serve the bundle")

// Verify reads a bundle to its end. It returns an error unless the bundle has that SHA-256,
// in lower-case hex, and an allowed size.
func Verify(ctx context.Context, r io.Reader, digest string, l Limits) error {
	if !digestPattern.MatchString(digest) {
		return fmt.Errorf("%q is no SHA-256 in lower-case hex: correct the pinned digest", digest)
	}
	sum := sha256.New()
	size, err := io.Copy(sum, io.LimitReader(contextReader{ctx, r}, l.BundleBytes+1))
	if err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}
	if size > l.BundleBytes {
		return fmt.Errorf("the bundle has more than %d bytes: leave out images, which hosts can pull", l.BundleBytes)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("the bundle is refused: %w: it is %s, not %s: fetch it again, or correct the pinned digest", ErrWrongDigest, got, digest)
	}
	return nil
}

// contextReader ends with the context of the call that made it.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// content is the content of a file. It ends with io.EOF only if it is what the manifest
// says.
type content struct {
	r    io.Reader
	file File
	sum  hash.Hash
	size int64
	err  error
}

func newContent(r io.Reader, f File) *content { return &content{r: r, file: f, sum: sha256.New()} }

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p)
	c.sum.Write(p[:n])
	c.size += int64(n)
	switch {
	case c.size > c.file.Size:
		n, err = 0, fmt.Errorf("%s has more than %d bytes, which the manifest says: build the bundle again", c.file.Name, c.file.Size)
	case errors.Is(err, io.EOF):
		err = c.end()
	case err != nil:
		err = fmt.Errorf("reading %s: %w", c.file.Name, err)
	}
	c.err = err
	return n, err
}

// end returns io.EOF if the content is complete and right.
func (c *content) end() error {
	if c.size != c.file.Size {
		return fmt.Errorf("%s has %d bytes, and the manifest says %d: build the bundle again", c.file.Name, c.size, c.file.Size)
	}
	if got := hex.EncodeToString(c.sum.Sum(nil)); got != c.file.SHA256 {
		return fmt.Errorf("the SHA-256 of %s is %s, and the manifest says %s: build the bundle again", c.file.Name, got, c.file.SHA256)
	}
	return io.EOF
}
