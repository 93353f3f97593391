package docs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Targets of make in the documents exist, with their variables, whether a test runs them or not. Labels are those of
// end-to-end tests, and a part of a name is part of one.
func TestMakeCommandsExist(t *testing.T) {
	g := NewWithT(t)
	list, err := script(t, "hack/e2e-labels.sh", "list")
	g.Expect(err).NotTo(HaveOccurred(), list)
	seen := map[string]bool{}
	for _, page := range pagesWithCommands(t) {
		for _, block := range blocksOf(t, page) {
			for _, command := range commandsOf(block) {
				if !strings.HasPrefix(command, "make ") || seen[command] {
					continue
				}
				seen[command] = true
				_, err := dry(t, command)
				g.Expect(err).NotTo(HaveOccurred(), page)
				if labels := variable(command, "E2E_LABELS"); labels != "" {
					out, err := script(t, "hack/e2e-labels.sh", "check", labels)
					g.Expect(err).NotTo(HaveOccurred(), "%s: %s: %s", page, command, out)
				}
				if focus := variable(command, "E2E_FOCUS"); focus != "" {
					g.Expect(list).To(MatchRegexp(focus), "%s: %s", page, command)
				}
				for _, name := range regexp.MustCompile(` ([A-Z][A-Z0-9_]+)=`).FindAllStringSubmatch(command, -1) {
					g.Expect(read(t, "Makefile")+read(t, "test/suite/e2e/upgrade_figures_test.go")).To(ContainSubstring(name[1]), "%s: %s: no recipe has the variable", page, command)
				}
			}
		}
	}
	g.Expect(len(seen)).To(BeNumerically(">", 20))
}

// variable returns the value of a variable in a command line.
func variable(command, name string) string {
	found := regexp.MustCompile(name + `=('[^']*'|\S+)`).FindStringSubmatch(command)
	if found == nil {
		return ""
	}
	return strings.Trim(found[1], "'")
}

// script runs a script of the repository.
func script(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./"+name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
