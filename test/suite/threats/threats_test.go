package threats_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var (
	testName = regexp.MustCompile(`^TestThreat([0-9]{2,})_`)
	// A numbered threat of the guide; one that has no test says "not yet".
	documented = regexp.MustCompile(`(?m)^\| ([0-9]+) \| .* \| (.*) \|$`)
	// What separates the mitigations of one threat.
	separator = regexp.MustCompile(`; |\. `)
	// Mitigations that have tests, and that no change of a Go file removes.
	notInCode = []string{
		"nothing is signed for hosts",                                                  // there is no code for it
		"changes by users are refused while they can't be recorded",                    // the webhook's manifest
		"only who may write registrations names a successor",                           // the manifests of roles
		"it permits [what this page lists](#what-the-manager-may-do) and nothing else", // these too
		"with one watched namespace it permits nothing in the namespaces of others",    // these too
		"the roles of tenants permit nothing in other namespaces",                      // these too
	}
)

// mitigations returns the mitigations of each threat in the guide; none for a threat of a
// function that does not exist yet.
func mitigations(t *testing.T) map[int][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[int][]string{}
	for _, row := range documented.FindAllStringSubmatch(string(text), -1) {
		number, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		all[number] = nil
		if !strings.HasPrefix(row[2], "not yet") {
			all[number] = separator.Split(row[2], -1)
		}
	}
	return all
}

// Each threat that the guide says is met has a test. README says how many there are.
func TestThreatsAreTested(t *testing.T) {
	g := NewWithT(t)
	all, tests := mitigations(t), tests(t)
	g.Expect(len(all)).To(BeNumerically(">=", 40), "all threats are in the guide")
	met := 0
	for number, mitigations := range all {
		if mitigations == nil {
			g.Expect(tests[number]).To(BeEmpty(), "threat %d has a test, so the guide should say how it is met", number)
			continue
		}
		met++
		g.Expect(tests[number]).NotTo(BeEmpty(), "threat %d has no test", number)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(readme)).To(ContainSubstring(fmt.Sprintf("%d threats; each of the %d that are met has a test", len(all), met)))
}

// Each mitigation in the guide has a file that removes it, and each file names mitigations
// of the guide.
func TestMitigationsAreRemoved(t *testing.T) {
	g := NewWithT(t)
	all := mitigations(t)
	removed := slices.Clone(notInCode)
	for _, r := range removals(t) {
		for _, mitigation := range r.mitigations {
			g.Expect(all[r.threat]).To(ContainElement(mitigation), "%s: the guide has no such mitigation", r.name)
			removed = append(removed, mitigation)
		}
	}
	for number, mitigations := range all {
		for _, mitigation := range mitigations {
			g.Expect(removed).To(ContainElement(mitigation), "nothing removes this mitigation of threat %d", number)
		}
	}
}

// The lines to remove exist.
func TestRemovalsApply(t *testing.T) {
	for _, r := range removals(t) {
		for _, c := range r.changes {
			if _, err := c.apply(); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		}
	}
}

// tests finds the tests of each threat.
func tests(t *testing.T) map[int][]string {
	t.Helper()
	found := map[int][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declared := range file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if match := testName.FindStringSubmatch(function.Name.Name); match != nil {
				number, _ := strconv.Atoi(match[1])
				found[number] = append(found[number], function.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("looking for tests: %v", err)
	}
	return found
}
