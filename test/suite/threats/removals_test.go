//go:build removals

package threats_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// testTimeout is the timeout of the tests of one threat.
const testTimeout = 5 * time.Minute

// noticed is what a test that fails leaves in the output of go test.
var noticed = regexp.MustCompile(`(?m)^--- FAIL: (TestThreat\S+)`)

func TestRemovals(t *testing.T) {
	for i, r := range removals(t) {
		if !isSelected(t, i) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			output, err := withOverlay(t, r)
			failed := noticed.FindAllStringSubmatch(output, -1)
			switch {
			case err == nil:
				t.Errorf("nothing failed without the mitigation of threat %d in %s:\n%s", r.threat, r.pkg, output)
			case len(failed) == 0:
				t.Errorf("the tests of threat %d did not end in %s: %v\n%s", r.threat, r.pkg, err, output)
			}
			for _, match := range failed {
				t.Log(match[1])
			}
		})
	}
}

// isSelected reports whether the environment variable REMOVALS, such as "3/10", selects the
// removal with the given number. A blank one selects all.
func isSelected(t *testing.T, number int) bool {
	t.Helper()
	selection := os.Getenv("REMOVALS")
	if selection == "" {
		return true
	}
	var part, parts int
	if _, err := fmt.Sscanf(selection, "%d/%d", &part, &parts); err != nil || part < 0 || part >= parts {
		t.Fatalf("REMOVALS is %q, want a part such as 3/10, counted from 0", selection)
	}
	return number%parts == part
}

// withOverlay runs the threat's tests on changed sources.
func withOverlay(t *testing.T, r removal) (string, error) {
	t.Helper()
	replace := map[string]string{}
	for i, c := range r.changes {
		text, err := c.apply()
		if err != nil {
			t.Fatal(err)
		}
		original, err := filepath.Abs(filepath.Join(root, c.file))
		if err != nil {
			t.Fatal(err)
		}
		changed := filepath.Join(t.TempDir(), strconv.Itoa(i)+".go")
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if replace[original] != "" {
			t.Fatalf("two changes of %s: make them one", c.file)
		}
		replace[original] = changed
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	// The timeout is that of the tests; vet would complain of what is not used any more. The
	// first failure is enough. Linking debug information takes longer than most of the tests.
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-failfast", "-ldflags=-w", "-overlay", name,
		"-timeout", testTimeout.String(), "-run", fmt.Sprintf("^TestThreat%02d_", r.threat), r.pkg)
	cmd.Dir = root
	output, err := cmd.CombinedOutput()
	return string(output), err
}
