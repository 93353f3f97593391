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
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var (
	testName = regexp.MustCompile(`^TestThreat([0-9]{2})_`)
	// A numbered threat of the guide; one that has no test says "not yet".
	documented = regexp.MustCompile(`(?m)^\| ([0-9]+) \|(.*)$`)
)

// Each threat that the guide says is met has a test, and a file that takes its
// mitigation away. README says how many there are.
func TestThreatsAreTested(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	g.Expect(err).NotTo(HaveOccurred())
	rows := documented.FindAllStringSubmatch(string(text), -1)
	g.Expect(len(rows)).To(BeNumerically(">=", 40), "all threats are in the guide")
	tests := tests(t)
	removed := map[int]bool{}
	for _, r := range removals(t) {
		removed[r.threat] = true
	}
	met := 0
	for _, row := range rows {
		number, err := strconv.Atoi(row[1])
		g.Expect(err).NotTo(HaveOccurred())
		if strings.Contains(row[2], "not yet") {
			g.Expect(tests[number]).To(BeEmpty(), "threat %d has a test, so the guide should say how it is met", number)
			continue
		}
		met++
		g.Expect(tests[number]).NotTo(BeEmpty(), "threat %d has no test", number)
		g.Expect(removed[number]).To(BeTrue(), "nothing takes the mitigation of threat %d away", number)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(readme)).To(ContainSubstring(fmt.Sprintf("%d threats; each of the %d that are met has a test", len(rows), met)))
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
