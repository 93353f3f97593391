package mounts_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

func TestPoints(t *testing.T) {
	root := t.TempDir()
	if _, err := mounts.Points(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a table: %v", err)
	}
	table := "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:1 /srv/a /mnt/b\\040c\\134d rw master:1 - ext4 /dev/sda1 rw\nshort line\n"
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "proc", "self"), 0o755),
		os.WriteFile(filepath.Join(root, "proc", "self", "mountinfo"), []byte(table), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if points, err := mounts.Points(root); err != nil || !slices.Equal(points, []string{"/", `/mnt/b c\d`}) {
		t.Errorf("got %q: %v", points, err)
	}
}

func TestAt(t *testing.T) {
	points := []string{"/", "/data/x"}
	for path, want := range map[string]string{"/data": "/data/x", "/data/x": "/data/x", "/data/x/y": "", "/dat": "", "/data/xy": ""} {
		if point, found := mounts.At(points, path); point != want || found != (want != "") {
			t.Errorf("%s: got %q, %t", path, point, found)
		}
	}
}
