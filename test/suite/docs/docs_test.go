package docs_test

import (
	"os"
	"os/exec"
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

// help returns what a program says when it is run with --help.
func help(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", program, "--help")
	cmd.Dir = root
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("running %s --help: %v\n%s", program, err, text)
	}
	return string(text)
}

func TestManagerFlagsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	// Flags of the log library are left to --help.
	others := regexp.MustCompile(`^(log-.*|vmodule|version|v)$`)
	flags := regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(help(t, "./cmd/manager"), -1)
	g.Expect(len(flags)).To(BeNumerically(">", 20))
	text := read(t, "docs/reference.md")
	for _, flag := range flags {
		if !others.MatchString(flag[1]) {
			g.Expect(text).To(ContainSubstring("`--" + flag[1] + "`"))
		}
	}
}

func TestBundleCommandsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text := read(t, "docs/bundles.md")
	commands := regexp.MustCompile(`(?m)^  ([a-z]+)  `).FindAllStringSubmatch(help(t, "./cmd/bundle"), -1)
	g.Expect(len(commands)).To(BeNumerically(">", 1))
	for _, command := range commands {
		g.Expect(text).To(ContainSubstring("bundle " + command[1] + " "))
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

func TestAgentCommandsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	commands := regexp.MustCompile(`(?m)^  ([a-z]+)  `).FindAllStringSubmatch(help(t, "./cmd/elemental-agent"), -1)
	g.Expect(len(commands)).To(BeNumerically(">", 4))
	text := read(t, "docs/agent.md")
	for _, command := range commands {
		g.Expect(text).To(MatchRegexp("`" + command[1] + "[` ]"))
	}
}
