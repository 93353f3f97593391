// Package archive writes tar archives whose bytes follow from their content alone.
package archive

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// maxFile is the largest file that Read and Extract accept, in bytes.
const maxFile = 1 << 30

// File is one entry of an archive.
type File struct {
	// Name is the entry's name, with slashes and without a leading one.
	Name string
	// Mode is 0644 or 0755. The umask and the mode of Path do not count.
	Mode fs.FileMode
	// Path is the file with the content; blank if Content is the content.
	Path    string
	Content []byte
}

// Write writes a tar archive of the files and their folders to w. Entries are sorted, belong to
// root and have the same time.
func Write(w io.Writer, files []File, at time.Time) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	out, folders := tar.NewWriter(w), map[string]bool{".": true}
	for _, f := range files {
		if err := writeFolders(out, path.Dir(f.Name), folders, at); err != nil {
			return err
		}
		if err := writeFile(out, f, at); err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
	}
	return out.Close()
}

// WriteGzip is Write with compression by gzip, into a file.
func WriteGzip(name string, files []File, at time.Time) error {
	return Create(name, func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		return errors.Join(Write(zip, files, at), zip.Close())
	})
}

// Create writes a file by a function. A file that could not be written is removed.
func Create(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// Tree returns the files below a folder, as entries with the mode 0644.
func Tree(folder string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		files = append(files, File{Name: filepath.ToSlash(name), Mode: 0o644, Path: file})
		return err
	})
	return files, err
}

// Extract writes the files of a tar archive into an empty folder. Entries other than files and
// folders are an error, and so is a name that leads out of the folder.
func Extract(r io.Reader, folder string) (err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return each(r, func(header *tar.Header, content io.Reader) error {
		if err := root.MkdirAll(path.Dir(header.Name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	})
}

// Read returns the content of one file of a tar archive, or fs.ErrNotExist.
func Read(r io.Reader, name string) (found []byte, err error) {
	err = each(r, func(header *tar.Header, content io.Reader) (err error) {
		if path.Clean(header.Name) == name {
			found, err = io.ReadAll(content)
		}
		return err
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return found, err
}

// each calls a function with each file of an archive.
func each(r io.Reader, do func(*tar.Header, io.Reader) error) error {
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading an archive: %w", err)
		}
		switch {
		case header.Typeflag == tar.TypeDir:
			continue
		case header.Typeflag != tar.TypeReg:
			return fmt.Errorf("%s in the archive is neither a file nor a folder", header.Name)
		case header.Size > maxFile:
			return fmt.Errorf("%s in the archive has more than %d bytes", header.Name, maxFile)
		}
		if err := do(header, io.LimitReader(in, header.Size)); err != nil {
			return fmt.Errorf("unpacking %s: %w", header.Name, err)
		}
	}
}

// writeFolders writes a folder and those above it, each once.
func writeFolders(w *tar.Writer, folder string, written map[string]bool, at time.Time) error {
	if written[folder] {
		return nil
	}
	if err := writeFolders(w, path.Dir(folder), written, at); err != nil {
		return err
	}
	written[folder] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR})
}

func writeFile(w *tar.Writer, f File, at time.Time) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: int64(f.Mode), Size: int64(len(f.Content)), ModTime: at, Format: tar.FormatUSTAR}
	if f.Path == "" {
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(f.Content)
		return err
	}
	content, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	info, err := content.Stat()
	if err == nil {
		header.Size = info.Size()
		err = w.WriteHeader(header)
	}
	if err == nil {
		_, err = io.Copy(w, content)
	}
	return errors.Join(err, content.Close())
}
