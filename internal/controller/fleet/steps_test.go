package fleet_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// agentSteps returns the values of the constants of the agent that are steps of operations.
func agentSteps(t *testing.T) []string {
	t.Helper()
	constant := regexp.MustCompile(`(?m)^\s*(?:const )?(?:[sS]tep\w*|phase\w*) += "([a-z]+)"$`)
	var steps []string
	for _, folder := range []string{"operation", "platform"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "agent", folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			for _, found := range constant.FindAllStringSubmatch(string(text), -1) {
				steps = append(steps, found[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(steps) < 20 {
		t.Fatalf("only %d steps were found: %q", len(steps), steps)
	}
	return steps
}
