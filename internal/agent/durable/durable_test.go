package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(durable.Temporary(path), []byte("left by a power cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "two"} {
		if err := durable.WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("got %q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("got %v, %v", info, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
}

// A write that fails keeps the old file and leaves no other file.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := durable.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if err := durable.Write(path, []byte("new"), func(*os.File) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := durable.WriteFile(filepath.Join(dir, "none", "a"), nil, 0o600); err == nil {
		t.Error("no error without a directory")
	}
}
