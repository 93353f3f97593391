package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return string(text)
}

func TestConditionsAndReasonsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text := read(t, "docs/reference.md")
	values := map[string]string{}
	addConstants(values, "", parse(t, filepath.Join(root, "api/v1beta2/conditions.go")))
	g.Expect(len(values)).To(BeNumerically(">", 40))
	for _, value := range values {
		g.Expect(text).To(MatchRegexp("`"+value+"[`:]"), "%s is not in the reference", value)
	}
}

func TestDestinationsOfBundlesAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text := read(t, "docs/bundles.md")
	for _, kind := range []bundle.Kind{bundle.KindProgram, bundle.KindUnit, bundle.KindFile} {
		folders := "`" + strings.Join(bundle.Destinations(kind), "`, `") + "`"
		g.Expect(text).To(ContainSubstring("| " + string(kind) + " | " + folders + " |"))
	}
}

// The node of a held host is drained and deleted, which the policy's name does not say.
func TestHoldIsDocumentedAsItIs(t *testing.T) {
	g := NewWithT(t)
	row := regexp.MustCompile("(?m)^\\| `spec.release.policy` .*$").FindString(read(t, "docs/reference.md"))
	g.Expect(row).To(ContainSubstring("does not reset the host, until an administrator sets spec.claim.phase of the host to Releasing"))
	g.Expect(row).To(ContainSubstring("Cluster API still drains the Node and deletes it"))
	g.Expect(read(t, "docs/operating.md")).To(ContainSubstring("Cluster API drains the Node first, and deletes the Node after the ElementalMachine"))
}
