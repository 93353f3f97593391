package engine

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRaiseLimits(t *testing.T) {
	folder := t.TempDir()
	write := func(name, value string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("max_user_instances", "128\n")
	write("max_user_watches", "999999999\n")
	if err := raiseLimits(folder); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"max_user_instances": "8192", "max_user_watches": "999999999\n"} {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	write("max_user_instances", "many")
	if err := raiseLimits(folder); err == nil {
		t.Error("a limit that is no number was accepted")
	}
}
