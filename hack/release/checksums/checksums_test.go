package checksums_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/checksums"
)

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(folder string) error
		want   string
	}{
		"nothing changed": {func(string) error { return nil }, ""},
		"a changed file": {
			func(folder string) error { return os.WriteFile(filepath.Join(folder, "a"), []byte("other"), 0o600) },
			"a has the digest",
		},
		"a missing file": {func(folder string) error { return os.Remove(filepath.Join(folder, "b", "c")) }, "b/c is missing"},
		"a file too many": {
			func(folder string) error { return os.WriteFile(filepath.Join(folder, "d"), nil, 0o600) },
			"d is not in SHA256SUMS",
		},
		"a file named twice": {
			func(folder string) error {
				file := filepath.Join(folder, checksums.File)
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				return os.WriteFile(file, append(text, text...), 0o600)
			}, "names a file twice",
		},
		"no digests": {func(folder string) error { return os.Remove(filepath.Join(folder, checksums.File)) }, "reading the digests"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.Mkdir(filepath.Join(folder, "b"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"a", "b/c"} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := checksums.Write(folder); err != nil {
				t.Fatal(err)
			}
			if err := tt.change(folder); err != nil {
				t.Fatal(err)
			}
			err := checksums.Check(folder)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The format is that of sha256sum: this is the digest of no bytes.
func TestFormat(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checksums.Write(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, checksums.File))
	const want = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
