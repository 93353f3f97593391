package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRun checks that a file is copied over another one, with its mode, as an init container runs it.
func TestRun(t *testing.T) {
	source, target := filepath.Join(t.TempDir(), "source"), filepath.Join(t.TempDir(), "target")
	for file, text := range map[string]string{source: "new", target: "old"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-f", source, target}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(target)
	if err != nil || string(got) != "new" {
		t.Errorf("got %q, %v", got, err)
	}
	info, err := os.Stat(target)
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := run([]string{source, target}); err == nil {
		t.Error("other arguments were accepted")
	}
}
