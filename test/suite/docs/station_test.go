//go:build embedded

package docs_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// maxCommandTime bounds the commands of a block, also on a busy machine.
const maxCommandTime = 5 * time.Minute

// station is the workstation of a reader, who runs the commands of pages one after the other. A variable or function that a
// block defines is there for the next one, and so is the folder that a block changes to. At its end, the test fails unless
// the station has run each block that the table gives to the test.
type station struct {
	*WithT

	t *testing.T
	// home is the reader's home, work the folder where the reader begins, and programs the first folder of PATH.
	home, work, programs string
	env                  []string
	// replacements are pairs: a text of the pages, and what stands for it here.
	replacements []string
	replaced     map[string]bool
	// answers is what the reader types.
	answers string
	// ran has the lines of the blocks that were run, by page.
	ran map[string][]int
}

// newStation returns a station for the management cluster of a kubeconfig file, with programs of test/tools.
func newStation(t *testing.T, kubeconfig string, programs ...string) *station {
	t.Helper()
	s := &station{
		WithT: NewWithT(t), t: t, home: t.TempDir(), work: t.TempDir(), programs: t.TempDir(),
		replaced: map[string]bool{}, ran: map[string][]int{},
	}
	s.SetDefaultEventuallyTimeout(2 * time.Minute)
	s.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	s.env = append(os.Environ(), "HOME="+s.home, "KUBECONFIG="+kubeconfig, "PATH="+s.programs+":"+os.Getenv("PATH"),
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off", "XDG_CONFIG_HOME=")
	for _, cache := range []string{"GOMODCACHE", "GOCACHE"} {
		folder, err := exec.CommandContext(t.Context(), "go", "env", cache).Output()
		s.Expect(err).NotTo(HaveOccurred())
		s.env = append(s.env, cache+"="+strings.TrimSpace(string(folder)))
	}
	folder := toolFolder(t, programs...)
	for _, name := range programs {
		s.Expect(os.Symlink(filepath.Join(folder, name), filepath.Join(s.programs, name))).To(Succeed())
	}
	t.Cleanup(func() {
		if !t.Failed() {
			s.checkComplete()
		}
	})
	return s
}

// checkComplete checks that all blocks of the test were run, and that each replacement is still of use.
func (s *station) checkComplete() {
	for page, list := range entries() {
		for _, e := range list {
			if e.fate != ran(s.t.Name()) {
				continue
			}
			block, err := blockOf(s.t, page, e.heading, e.first)
			s.Expect(err).NotTo(HaveOccurred())
			if !slices.Contains(s.ran[page], block.Line) {
				s.t.Errorf("the table says that %s runs %s:%d, %q, and it did not", s.t.Name(), page, block.Line, block.First())
			}
		}
	}
	for i := 0; i < len(s.replacements); i += 2 {
		if from := s.replacements[i]; !s.replaced[from] {
			s.t.Errorf("%q was replaced nowhere", from)
		}
	}
}

// replace has texts of pages replaced from now on.
func (s *station) replace(pairs ...string) { s.replacements = append(s.replacements, pairs...) }

// script returns a block of a page, with replacements, and notes that it is run.
func (s *station) script(page, heading, first string) string {
	s.t.Helper()
	block, err := blockOf(s.t, page, heading, first)
	s.Expect(err).NotTo(HaveOccurred())
	gives := func(e entry) bool {
		return e.heading == heading && strings.HasPrefix(block.First(), e.first) && e.fate == ran(s.t.Name())
	}
	s.Expect(slices.ContainsFunc(entries()[page], gives)).To(BeTrue(), "%s: the table does not say that this test runs %q", page, first)
	s.ran[page] = append(s.ran[page], block.Line)
	for i := 0; i < len(s.replacements); i += 2 {
		s.replaced[s.replacements[i]] = s.replaced[s.replacements[i]] || strings.Contains(block.Script, s.replacements[i])
	}
	return strings.NewReplacer(s.replacements...).Replace(block.Script)
}

// run runs a block of a page, and returns what it printed.
func (s *station) run(page, heading, first string) string {
	s.t.Helper()
	out, err := s.shell(s.script(page, heading, first))
	s.Expect(err).NotTo(HaveOccurred(), "%s, %s, %s:\n%s", page, heading, first, out)
	return out
}

// try runs a block whose exit code says something, and returns what it printed.
func (s *station) try(page, heading, first string) (string, error) {
	s.t.Helper()
	return s.shell(s.script(page, heading, first))
}

// do runs a command of the test.
func (s *station) do(command string) string {
	s.t.Helper()
	out, err := s.shell(command)
	s.Expect(err).NotTo(HaveOccurred(), "%s:\n%s", command, out)
	return out
}

// see repeats a command of the test until its output is as expected.
func (s *station) see(command string, want OmegaMatcher) {
	s.t.Helper()
	s.Eventually(func() (string, error) { return s.execute(command) }).Should(want, command)
}

// session is what the shell of a reader keeps between two blocks.
const session = `set -e -o pipefail
if [ -e "$HOME/.session" ]; then . "$HOME/.session"; fi
`

const keepSession = `
{ declare -p | grep -E '^declare -[x-]+ [a-zA-Z]'; declare -f; printf 'cd %q\n' "$PWD"; } > "$HOME/.session"
`

// shell runs a script in the reader's shell.
func (s *station) shell(script string) (string, error) {
	out, err := s.execute(script)
	s.t.Logf("$ %s\n%s", script, out)
	return out, err
}

func (s *station) execute(script string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), maxCommandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", session+script+keepSession)
	cmd.Dir, cmd.Env, cmd.Stdin = s.work, s.env, strings.NewReader(s.answers)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// forget ends the shell of the reader, with its variables.
func (s *station) forget() {
	s.t.Helper()
	s.Expect(os.RemoveAll(filepath.Join(s.home, ".session"))).To(Succeed())
}

// use has the reader use another management cluster.
func (s *station) use(kubeconfig string) {
	s.t.Helper()
	s.env = append(s.env, "KUBECONFIG="+kubeconfig)
	s.do("export KUBECONFIG=" + kubeconfig)
}

// program installs a script of the test instead of a program.
func (s *station) program(name, script string) {
	s.t.Helper()
	s.Expect(os.WriteFile(filepath.Join(s.programs, name), []byte(script), 0o700)).To(Succeed())
}

// build builds a program of a module, of which the folder is given.
func (s *station) build(folder, pkg, name string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(s.programs, name), pkg)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	s.Expect(err).NotTo(HaveOccurred(), string(out))
}

// toolFolder returns the folder with programs of test/tools.
func toolFolder(t *testing.T, names ...string) string {
	t.Helper()
	g := NewWithT(t)
	tools, err := toolset.Select(names...)
	g.Expect(err).NotTo(HaveOccurred())
	cache, err := toolset.CacheDir()
	g.Expect(err).NotTo(HaveOccurred())
	folder, err := toolset.Builder{Modules: filepath.Join(root, "test", "tools"), Cache: cache, Progress: t.Output()}.Folder(t.Context(), tools...)
	g.Expect(err).NotTo(HaveOccurred())
	return folder
}
