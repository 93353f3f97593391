package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

func at() time.Time { return time.Unix(1_700_000_000, 0) }

// The order of files, their time and their mode on disk change nothing.
func TestWriteIsReproducible(t *testing.T) {
	var archives [2][]byte
	for n := range archives {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte("content"), fs.FileMode(0o600+n*0o44)); err != nil {
			t.Fatal(err)
		}
		files := []archive.File{
			{Name: "folder/program", Mode: 0o755, Path: file},
			{Name: "a", Mode: 0o644, Content: []byte("a")},
		}
		if n == 1 {
			files[0], files[1] = files[1], files[0]
		}
		var out bytes.Buffer
		if err := archive.Write(&out, files, at()); err != nil {
			t.Fatal(err)
		}
		archives[n] = out.Bytes()
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the archives differ")
	}
	in, got := tar.NewReader(bytes.NewReader(archives[0])), []string{}
	for {
		header, err := in.Next()
		if err != nil {
			break
		}
		got = append(got, header.FileInfo().Mode().String()+" "+header.Name)
		if header.Uid != 0 || header.Uname != "" || !header.ModTime.Equal(at()) {
			t.Errorf("%s has owner %d %q and time %s", header.Name, header.Uid, header.Uname, header.ModTime)
		}
	}
	if want := "-rw-r--r-- a, drwxr-xr-x folder/, -rwxr-xr-x folder/program"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

func TestRead(t *testing.T) {
	var out bytes.Buffer
	if err := archive.Write(&out, []archive.File{{Name: "a/b", Mode: 0o644, Content: []byte("text")}}, at()); err != nil {
		t.Fatal(err)
	}
	if got, err := archive.Read(bytes.NewReader(out.Bytes()), "a/b"); err != nil || string(got) != "text" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := archive.Read(bytes.NewReader(out.Bytes()), "b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
}

// An archive from elsewhere writes nothing outside of the folder.
func TestExtractStaysInTheFolder(t *testing.T) {
	for name, header := range map[string]*tar.Header{
		"a name that leads out": {Name: "../evil", Typeflag: tar.TypeReg},
		"an absolute name":      {Name: "/evil", Typeflag: tar.TypeReg},
		"a link":                {Name: "link", Linkname: "..", Typeflag: tar.TypeSymlink},
		"a huge file":           {Name: "huge", Size: 2 << 30, Typeflag: tar.TypeReg},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			if err := tar.NewWriter(&text).WriteHeader(header); err != nil {
				t.Fatal(err)
			}
			outer := t.TempDir()
			inner := filepath.Join(outer, "inner")
			if err := os.Mkdir(inner, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := archive.Extract(&text, inner); err == nil {
				t.Error("there is no error")
			}
			left, err := archive.Tree(outer)
			if err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

// What could not be written is not taken for a file of the release.
func TestCreateLeavesNoHalf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	err := archive.WriteGzip(file, []archive.File{{Name: "a", Path: filepath.Join(t.TempDir(), "missing")}}, at())
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}
