package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/guide"
)

// fate is what becomes of a block.
type fate interface {
	// kind names it for the summary.
	kind() string
	// check reports what is not true of it.
	check(t *testing.T, page string, b guide.Block) error
}

// ran is the test of this folder that runs the block as it is in the page, but for replacements that the test names. The
// test fails if it does not run the block: see station.
type ran string

func (ran) kind() string { return "run as they are by a test of this folder" }

func (r ran) check(t *testing.T, _ string, _ guide.Block) error {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return fmt.Errorf("listing tests: %w", err)
	}
	for _, file := range files {
		for _, f := range functions([]*ast.File{parse(t, file)}) {
			if f.Recv == nil && f.Name.Name == string(r) {
				return nil
			}
		}
	}
	return fmt.Errorf("there is no test %s in this folder", string(r))
}

// walked is an end-to-end test that reads the steps of the page and follows all of them.
type walked struct{ file, spec string }

func (walked) kind() string { return "followed as they are by an end-to-end test" }

func (w walked) check(t *testing.T, page string, b guide.Block) error {
	t.Helper()
	source := read(t, w.file)
	for _, text := range []string{strconv.Quote(filepath.Base(page)), "guide.Steps("} {
		if !strings.Contains(source, text) {
			return fmt.Errorf("%s does not have %s, so it does not follow the page", w.file, text)
		}
	}
	if !strings.Contains(readFolder(t, filepath.Dir(w.file)), "It("+strconv.Quote(w.spec)) {
		return fmt.Errorf("no test beside %s is called %q", w.file, w.spec)
	}
	steps, err := guide.Steps(read(t, page))
	if err != nil {
		return err
	}
	for _, s := range steps {
		if slices.Contains(s.Scripts, b.Script) {
			return nil
		}
	}
	return errors.New("it is not in a step of the page")
}

// written is a function in whose file each command of the block is written out.
type written struct{ file, function string }

func (written) kind() string { return "written out in a test, or in a turn of CI" }

func (w written) check(t *testing.T, _ string, b guide.Block) error {
	t.Helper()
	file := parse(t, filepath.Join(root, w.file))
	if !slices.ContainsFunc(functions([]*ast.File{file}), func(f *ast.FuncDecl) bool { return f.Name.Name == w.function }) {
		return fmt.Errorf("%s has no function %s", w.file, w.function)
	}
	texts := literals(file)
	for _, command := range commandsOf(b) {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, command) }) {
			return fmt.Errorf("%s does not have the command %q", w.file, command)
		}
	}
	return nil
}

// like is another block that has all commands of this one, and is run.
type like struct{ page, heading, first string }

func (like) kind() string { return "the same commands as in a block that is run" }

func (l like) check(t *testing.T, page string, b guide.Block) error {
	t.Helper()
	other, err := blockOf(t, l.page, l.heading, l.first)
	if err != nil {
		return err
	}
	if l.page == page && other.Line == b.Line {
		return errors.New("the other block is this one")
	}
	for _, command := range commandsOf(b) {
		if !slices.Contains(commandsOf(other), command) {
			return fmt.Errorf("the other block does not have the command %q", command)
		}
	}
	for _, e := range entries()[l.page] {
		if e.heading != l.heading || e.first != l.first {
			continue
		}
		switch e.fate.(type) {
		case unrun, like:
			return errors.New("the other block is not run itself")
		}
		return nil
	}
	return errors.New("the other block has no entry of this heading and beginning")
}

// benchmark is a block that runs one benchmark for long. A test runs the same benchmark with few hosts.
type benchmark string

func (benchmark) kind() string { return "benchmarks, which a test runs with few hosts" }

func (s benchmark) check(t *testing.T, _ string, b guide.Block) error {
	t.Helper()
	if want := []string{"make bench-" + string(s)}; !slices.Equal(commandsOf(b), want) {
		return fmt.Errorf("its commands are not %q", want)
	}
	tests := "test/suite/bench"
	if !slices.Contains(allLiterals(t, tests), string(s)) {
		return fmt.Errorf("no test of %s runs the benchmark %s", tests, string(s))
	}
	return nil
}

// made is a test that makes the targets of the block with other variables, such as another version and folder.
type made struct{ folder, test string }

func (made) kind() string { return "targets of make that a test makes with other variables" }

func (m made) check(t *testing.T, _ string, b guide.Block) error {
	t.Helper()
	if !strings.Contains(readFolder(t, m.folder), "\nfunc "+m.test+"(") {
		return fmt.Errorf("%s has no test %s", m.folder, m.test)
	}
	for _, command := range commandsOf(b) {
		words := strings.Fields(command)
		if words[0] != "make" || !slices.Contains(allLiterals(t, m.folder), words[1]) {
			return fmt.Errorf("%s does not make the target of %q", m.folder, command)
		}
	}
	return nil
}

// unrun is a block that no test runs.
type unrun struct {
	reason reason
	why    string
}

func (u unrun) kind() string { return "not run: " + reasons()[u.reason] }

func (u unrun) check(*testing.T, string, guide.Block) error { return nil }

// reason is a kind of reasons.
type reason int

const (
	// onHost is for commands of root on a host that is a machine.
	onHost reason = iota + 1
	// outside is for what belongs to somebody else.
	outside
	// takesHours is for what takes too long for each change.
	takesHours
	// needsCluster is for commands that need a workload cluster on real hosts.
	needsCluster
)

func reasons() map[reason]string {
	return map[reason]string{
		onHost:       "changes a real host as root",
		outside:      "needs what belongs to somebody else",
		takesHours:   "takes too long",
		needsCluster: "needs a workload cluster on real hosts",
	}
}

var comment = regexp.MustCompile(`\s+# .*$`)

// commandsOf returns the commands of a block without the comments behind them.
func commandsOf(b guide.Block) []string {
	var out []string
	for _, command := range b.Commands() {
		out = append(out, strings.Join(strings.Fields(comment.ReplaceAllString(command, "")), " "))
	}
	return out
}

// literals returns the strings of a file.
func literals(file *ast.File) []string {
	var out []string
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}

// testsIn returns the files of tests of a folder.
func testsIn(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", folder, err)
	}
	return files
}

func allLiterals(t *testing.T, folder string) []string {
	t.Helper()
	var out []string
	for _, file := range testsIn(t, folder) {
		out = append(out, literals(parse(t, file))...)
	}
	return out
}

func readFolder(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range testsIn(t, folder) {
		all.WriteString(read(t, filepath.Join(folder, filepath.Base(file))))
	}
	return all.String()
}

// dry returns what a command line of make would run.
func dry(t *testing.T, line string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "make ", "make --no-print-directory --dry-run ", 1))
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("making %s: %w: %s", line, err, out)
	}
	return string(out), nil
}
