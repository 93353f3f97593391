package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/manifests"
)

func TestCheckSeries(t *testing.T) {
	const series = "releaseSeries:\n  - major: 0\n    minor: 1\n    contract: v1beta2\n  - major: 1\n    minor: 20\n"
	for name, tt := range map[string]struct{ metadata, version, want string }{
		"the first":              {series, "v0.1.9", ""},
		"the last":               {series, "v1.20.0-rc.1", ""},
		"a longer minor version": {series, "v1.2.0", "no release series for v1.2.0"},
		"a new minor version":    {series, "v0.2.0", "no release series for v0.2.0"},
		"a new major version":    {series, "v2.1.0", "no release series for v2.1.0"},
		"no series":              {"kind: Metadata\n", "v0.1.0", "no release series"},
		"not YAML":               {"a: b: c\n", "v0.1.0", "reading metadata.yaml: "},
		"no file":                {"", "v0.1.0", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if tt.metadata != "" {
				if err := os.WriteFile(filepath.Join(root, "metadata.yaml"), []byte(tt.metadata), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := manifests.CheckSeries(root, tt.version)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
