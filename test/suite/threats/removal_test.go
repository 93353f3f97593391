package threats_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the module's folder.
const root = "../../.."

// removal takes one mitigation away.
type removal struct {
	name   string
	threat int
	// mitigations are the parts of the guide that say what is removed.
	mitigations []string
	pkg         string
	changes     []change
}

// change replaces text in a file.
type change struct{ file, old, new string }

// removals reads all files.
func removals(t *testing.T) []removal {
	t.Helper()
	names, err := filepath.Glob("removals/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("finding removals: %d, %v", len(names), err)
	}
	out := make([]removal, 0, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := parse(string(text))
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		r.name = strings.TrimSuffix(filepath.Base(name), ".txt")
		out = append(out, r)
	}
	return out
}

// parse reads one file.
func parse(text string) (r removal, err error) {
	var body *string
	for line := range strings.Lines(text) {
		marker, isMarker := markerOf(line)
		switch {
		case isMarker && marker == "becomes":
			if len(r.changes) == 0 {
				return r, errors.New("nothing becomes something")
			}
			body = &r.changes[len(r.changes)-1].new
		case isMarker:
			r.changes = append(r.changes, change{file: marker})
			body = &r.changes[len(r.changes)-1].old
		case body != nil:
			*body += line
		default:
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "threat":
				if r.threat, err = strconv.Atoi(value); err != nil {
					return r, err
				}
			case "mitigation":
				r.mitigations = append(r.mitigations, value)
			case "package":
				r.pkg = value
			}
		}
	}
	if r.threat == 0 || len(r.mitigations) == 0 || r.pkg == "" || len(r.changes) == 0 {
		return r, errors.New("it has no threat, no mitigation, no package or no change")
	}
	return r, nil
}

func markerOf(line string) (string, bool) {
	marker, begins := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
	marker, ends := strings.CutSuffix(marker, " --")
	return marker, begins && ends
}

// apply returns the file's text after the change.
func (c change) apply() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, c.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), c.old); n != 1 {
		return "", fmt.Errorf("the old lines are in %s %d times:\n%s", c.file, n, c.old)
	}
	return strings.Replace(string(text), c.old, c.new, 1), nil
}
