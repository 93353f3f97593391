package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return string(text)
}

// constants returns the string constants of a Go file.
func constants(t *testing.T, name string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
	if err != nil {
		t.Fatalf("parsing %s: %v", name, err)
	}
	var values []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			if literal, ok := v.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					values = append(values, value)
				}
			}
		}
		return true
	})
	return values
}

func TestConditionsAndReasonsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text := read(t, "docs/reference.md") + read(t, "docs/operating.md")
	values := constants(t, "api/v1beta2/conditions.go")
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
	text := read(t, "docs/operating.md")
	for _, flag := range flags {
		if !others.MatchString(flag[1]) {
			g.Expect(text).To(ContainSubstring("`--" + flag[1] + "`"))
		}
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

func TestMetricsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text := read(t, "docs/operating.md")
	names := regexp.MustCompile(`Name: +"([a-z_]+)"`).FindAllStringSubmatch(read(t, "internal/server/metrics.go"), -1)
	g.Expect(names).NotTo(BeEmpty())
	for _, name := range names {
		g.Expect(text).To(ContainSubstring("`elemental_agent_api_" + name[1]))
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	g := NewWithT(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(page)
		g.Expect(err).NotTo(HaveOccurred())
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), link[1]))
			g.Expect(err).NotTo(HaveOccurred(), "link in %s", page)
		}
	}
}
