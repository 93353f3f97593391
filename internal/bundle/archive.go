package bundle

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	// block is the unit of a tar archive, in bytes.
	block = 512
	// trailer is the size of the end of a tar archive.
	trailer = 2 * block
)

// archive reads a bundle after decompression. The manifest determines every byte of it, so
// not a byte more is decompressed than the limits allow, whatever the compressed data say.
type archive struct {
	stream   *exactReader
	tar      *tar.Reader
	manifest Manifest
	// index is that of the next file.
	index int
	// content is that of the previous file.
	content io.Reader
	// err is the result of next, once it was not nil.
	err error
}

// newArchive reads the manifest.
func newArchive(r io.Reader, l Limits) (*archive, error) {
	stream := &exactReader{r: r, left: block + padded(l.ManifestBytes)}
	a := &archive{stream: stream, tar: tar.NewReader(stream)}
	header, err := a.tar.Next()
	if errors.Is(err, io.EOF) {
		err = errTruncated
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s at its beginning: %w", ManifestName, err)
	}
	if header.Name != ManifestName {
		return nil, fmt.Errorf("it begins with %q, not with %s: build bundles with `bundle build`", header.Name, ManifestName)
	}
	if header.Size > l.ManifestBytes {
		return nil, fmt.Errorf("%s has %d bytes, and the limit is %d: put fewer files into the bundle", ManifestName, header.Size, l.ManifestBytes)
	}
	if err := checkHeader(header, ManifestName, 0o644, header.Size); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(a.tar)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ManifestName, err)
	}
	if a.manifest, err = Decode(data, l); err != nil {
		return nil, fmt.Errorf("checking %s: %w", ManifestName, err)
	}
	size := block + padded(header.Size) + trailer
	for _, f := range a.manifest.Files {
		size += block + padded(f.Size)
	}
	stream.left = size - stream.read
	return a, nil
}

// padded is the space that a file has in an archive.
func padded(size int64) int64 { return (size + block - 1) / block * block }

func (a *archive) next() (File, io.Reader, error) {
	if a.err != nil {
		return File{}, nil, a.err
	}
	f, err := a.advance()
	if err != nil {
		a.err = err
		return File{}, nil, err
	}
	a.content = newContent(a.tar, f)
	return f, a.content, nil
}

// advance goes to the next file. It returns io.EOF at the end.
func (a *archive) advance() (File, error) {
	if a.content != nil {
		if _, err := io.Copy(io.Discard, a.content); err != nil {
			return File{}, err
		}
		a.content = nil
	}
	header, err := a.tar.Next()
	files := a.manifest.Files
	switch {
	case errors.Is(err, io.EOF) && a.index == len(files):
		return File{}, a.stream.end()
	case errors.Is(err, io.EOF):
		return File{}, fmt.Errorf("the bundle lacks %s, which its manifest lists: fetch or build it again", files[a.index].Name)
	case err != nil:
		return File{}, fmt.Errorf("reading the bundle: %w", err)
	case a.index == len(files) || header.Name != files[a.index].Name:
		return File{}, a.unexpected(header.Name)
	}
	f := files[a.index]
	a.index++
	return f, checkHeader(header, f.Name, f.Mode, f.Size)
}

// unexpected says why an entry is not the next file of the manifest.
func (a *archive) unexpected(name string) error {
	listed := slices.IndexFunc(a.manifest.Files, func(f File) bool { return f.Name == name })
	switch {
	case name == ManifestName:
		return fmt.Errorf("the bundle has a second %s: build bundles with `bundle build`", name)
	case listed < 0:
		return fmt.Errorf("the bundle holds %q, which its manifest does not list: build bundles with `bundle build`", name)
	case listed < a.index:
		return fmt.Errorf("the bundle holds %s a second time: build bundles with `bundle build`", name)
	default:
		return fmt.Errorf("the bundle lacks %s, or has it in another order than its manifest: build bundles with `bundle build`", a.manifest.Files[a.index].Name)
	}
}

// checkHeader refuses everything that newHeader does not write: links, devices, folders,
// sparse files, owners, times and extended headers.
func checkHeader(got *tar.Header, name string, mode Mode, size int64) error {
	want := newHeader(name, mode, size)
	var problem string
	switch {
	case got.Typeflag != tar.TypeReg:
		problem = fmt.Sprintf("is an entry of type %q: only regular files are allowed", got.Typeflag)
	case got.Format != tar.FormatUSTAR || len(got.PAXRecords) > 0:
		problem = fmt.Sprintf("has a header of format %v: only %v is allowed", got.Format, want.Format)
	case got.Name != want.Name:
		problem = fmt.Sprintf("has the name %q in its header", got.Name)
	case got.Size != want.Size:
		problem = fmt.Sprintf("has %d bytes by its header, and the manifest says %d", got.Size, want.Size)
	case got.Mode != want.Mode:
		problem = fmt.Sprintf("has the mode %04o in its header, and %04o is expected", got.Mode, want.Mode)
	case got.Linkname != "" || got.Uid != 0 || got.Gid != 0 || got.Uname != "" || got.Gname != "" ||
		got.Devmajor != 0 || got.Devminor != 0 || !got.ModTime.Equal(want.ModTime):
		problem = "has an owner, a time, a link or a device in its header"
	default:
		return nil
	}
	return fmt.Errorf("%s %s: build bundles with `bundle build`", name, problem)
}

var (
	errTruncated = errors.New("the bundle ends too early: fetch or build it again")
	errTooLong   = errors.New("the bundle has more in it than its manifest lists: build bundles with `bundle build`")
)

// exactReader reads as many bytes as are left, and fails on the next one.
type exactReader struct {
	r          io.Reader
	read, left int64
}

// Read implements io.Reader.
func (e *exactReader) Read(p []byte) (int, error) {
	if e.left == 0 && len(p) > 0 {
		return 0, errTooLong
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.read += int64(n)
	e.left -= int64(n)
	return n, err
}

// end returns io.EOF if everything was read, and nothing follows.
func (e *exactReader) end() error {
	if e.left > 0 {
		return errTruncated
	}
	switch n, err := io.ReadFull(e.r, make([]byte, 1)); {
	case n > 0:
		return errTooLong
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("reading the end of the bundle: %w", err)
	default:
		return io.EOF
	}
}
