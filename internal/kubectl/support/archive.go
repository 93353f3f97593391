package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// maxFile and maxArchive are the number of bytes of a file and of all files, before they
	// are compressed.
	maxFile    = 8 << 20
	maxArchive = 64 << 20
)

// errFull means that a file or the archive has reached its size.
var errFull = errors.New("the rest is left out, because the archive is bounded")

// archive is a compressed tar archive of bounded size.
type archive struct {
	zip  *gzip.Writer
	tar  *tar.Writer
	at   time.Time
	left int
}

func newArchive(out io.Writer, at time.Time) *archive {
	zip := gzip.NewWriter(out)
	return &archive{zip: zip, tar: tar.NewWriter(zip), at: at, left: maxArchive}
}

// add adds a file. It returns errFull if the archive has no place for it.
func (a *archive) add(name string, content []byte) error {
	if len(content) > a.left {
		return errFull
	}
	a.left -= len(content)
	return a.write(name, content)
}

func (a *archive) write(name string, content []byte) error {
	err := a.tar.WriteHeader(&tar.Header{Name: "support/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: a.at})
	if err == nil {
		_, err = a.tar.Write(content)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func (a *archive) close() error {
	if err := errors.Join(a.tar.Close(), a.zip.Close()); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// file is the content of a file, which has a limit.
type file struct {
	bytes.Buffer

	limit int
}

// append adds a piece as a whole, or returns errFull.
func (f *file) append(piece []byte) error {
	if f.Len()+len(piece) > f.limit {
		return errFull
	}
	_, err := f.Write(piece)
	return err
}
