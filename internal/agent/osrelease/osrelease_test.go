package osrelease_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/osrelease"
)

func TestRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  map[string]string
	}{
		"none":     {nil, nil},
		"quotes":   {map[string]string{"etc": "# comment=1\nID=debian\nVERSION_ID=\"12\"\nNAME='Debian Linux'\n\nodd\n"}, map[string]string{"ID": "debian", "VERSION_ID": "12", "NAME": "Debian Linux"}},
		"usr only": {map[string]string{"usr/lib": "ID=sles\n"}, map[string]string{"ID": "sles"}},
		"etc wins": {map[string]string{"etc": "ID=a\n", "usr/lib": "ID=b\n"}, map[string]string{"ID": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for dir, text := range c.files {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, dir, "os-release"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := osrelease.Read(root); err != nil || !maps.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}
