package parser_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// The documents were rendered by CAPI's kubeadm provider, or resemble those of the k3s
// and RKE2 providers.
func TestDocumentsOfProviders(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"cabpk-init.yaml", "cabpk-join.yaml", "cabpk-worker.yaml", "k3s-server.yaml", "rke2-agent.yaml", "cabpk-init.ign", "cabpk-worker.ign"} {
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			name, format := strings.TrimSuffix(document, ".yaml"), bootstrapdata.FormatCloudConfig
			if name == document {
				format = bootstrapdata.FormatIgnition
			}
			text, err := os.ReadFile(filepath.Join("testdata", document))
			if err != nil {
				t.Fatal(err)
			}
			vars := bootstrapdata.NewVariables(map[string]any{"instance-id": "i-1", "local-hostname": "edge-7", "hostname": "edge-7"}, map[string]any{"local_hostname": "edge-7"})
			config, warnings, err := parser.Parse(text, format, vars)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				if !strings.Contains(w.Text, "inactive is a boolean") {
					t.Errorf("unexpected warning: %s", w)
				}
			}
			if config.Sentinel != bootstrapdata.SentinelPath {
				t.Errorf("got sentinel %q", config.Sentinel)
			}
			var out bytes.Buffer
			if err := bootstrapdata.Describe(&out, config); err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"hidden", "abcdef.0123456789abcdef", "BEGIN", "AAAA one"} {
				if strings.Contains(out.String(), secret) {
					t.Errorf("the description shows %q", secret)
				}
			}
			golden(t, name+".describe", out.Bytes())
			if len(config.Commands) > 0 {
				golden(t, name+".script", []byte(bootstrapdata.Script(config.Commands)))
			}
			var files bytes.Buffer
			for _, f := range config.Files {
				files.WriteString("--- " + f.Path + "\n")
				files.Write(f.Content)
			}
			golden(t, name+".files", files.Bytes())
		})
	}
}
