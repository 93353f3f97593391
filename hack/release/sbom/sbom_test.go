package sbom_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/sbom"
)

// program builds a program. Those of tests do not say which modules they have.
func program(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "./testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("building a program: %v\n%s", err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := sbom.Write(&out, "tool", "v1.2.3", content); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWrite(t *testing.T) {
	content := program(t)
	text := write(t, content)
	if !bytes.Equal(text, write(t, content)) {
		t.Error("two documents of one program differ")
	}
	var got struct {
		BOMFormat    string
		SerialNumber *string
		Metadata     struct {
			Timestamp *string
			Component struct{ Type, Name, Version string }
		}
		Components []struct{ Type, Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.BOMFormat != "CycloneDX" || got.SerialNumber != nil || got.Metadata.Timestamp != nil {
		t.Errorf("got %+v", got)
	}
	if c := got.Metadata.Component; c.Type != "application" || c.Name != "tool" || c.Version != "v1.2.3" {
		t.Errorf("got component %+v", c)
	}
	var names []string
	for _, c := range got.Components {
		names = append(names, c.Name)
		if c.PURL != "pkg:golang/"+c.Name+"@"+c.Version || c.Version == "" || c.Type != "library" {
			t.Errorf("got %+v", c)
		}
	}
	if all := strings.Join(names, " "); !strings.HasPrefix(all, "stdlib ") || !strings.Contains(all, "github.com/CycloneDX/cyclonedx-go") {
		t.Errorf("got modules %s", all)
	}
	if err := sbom.Check(text, content); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	content := program(t)
	text := string(write(t, content))
	const module = "github.com/CycloneDX/cyclonedx-go"
	err := sbom.Check([]byte(strings.ReplaceAll(text, "pkg:golang/"+module, "pkg:golang/example.com/other")), content)
	if err == nil || !strings.Contains(err.Error(), module) || !strings.Contains(err.Error(), "pkg:golang/example.com/other") {
		t.Errorf("got error %v", err)
	}
	if err := sbom.Check([]byte("{"), content); err == nil {
		t.Error("what is no document is accepted")
	}
	if err := sbom.Check([]byte(text), []byte("no program")); err == nil {
		t.Error("what is no program is accepted")
	}
}
