package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// parentVariable makes the test program a parent that starts a program and waits to be killed.
const parentVariable = "TEST_PROCESS_PARENT"

const soon = time.Minute

func TestMain(m *testing.M) {
	if folder := os.Getenv(parentVariable); folder != "" {
		p, err := Start(shell(folder, "sleep 1000"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		<-p.Done()
	}
	os.Exit(m.Run())
}

func shell(folder, script string) Spec {
	return Spec{Name: "it", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"WORD=word"}, Dir: folder, Log: filepath.Join(folder, "log")}
}

// gone reports whether no process has this ID, or only one that was not waited for yet.
func gone(pid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	_, state, _ := strings.Cut(string(status), ") ")
	return strings.HasPrefix(state, "Z")
}

func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(shell(t.TempDir(), script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	return p
}

func TestUnaskedEnd(t *testing.T) {
	g := NewWithT(t)
	p := start(t, `echo "$WORD $HOME"; pwd; echo reason >&2; exit 3`)
	g.Eventually(p.Done()).WithTimeout(soon).Should(BeClosed())
	g.Expect(p.Err()).To(MatchError(And(ContainSubstring("it ended by itself (exit status 3)"), ContainSubstring("word \n"), HaveSuffix("reason"))))
	g.Expect(p.Err().Error()).To(ContainSubstring(filepath.Dir(p.log)+"\n"), "it ran in its folder")
	g.Expect(p.Stop(soon)).To(BeFalse())

	p = start(t, `i=0; while [ $i -lt 300 ]; do echo "line $i of many"; i=$((i+1)); done; kill -9 $$`)
	g.Eventually(p.Done()).WithTimeout(soon).Should(BeClosed())
	text := p.Err().Error()
	g.Expect(text).To(And(ContainSubstring("signal: killed"), HaveSuffix("line 299 of many")))
	g.Expect(len(text)).To(BeNumerically("<", tail+300))
	_, quoted, _ := strings.Cut(text, "\n")
	g.Expect(quoted).To(HavePrefix("line "), "no half line")

	_, err := Start(Spec{Name: "nothing", Path: filepath.Join(t.TempDir(), "none"), Log: filepath.Join(t.TempDir(), "log")})
	g.Expect(err).To(MatchError(os.ErrNotExist))
	g.Expect(err).To(MatchError(HavePrefix("starting nothing: ")))
}

func TestStop(t *testing.T) {
	g := NewWithT(t)
	// The shell has a child, which stays when only the shell is signalled.
	p := start(t, "sleep 1000 & echo $!; wait")
	g.Eventually(func() (string, error) { return end(p.log) }).WithTimeout(soon).ShouldNot(BeEmpty())
	text, err := end(p.log)
	g.Expect(err).NotTo(HaveOccurred())
	child, err := strconv.Atoi(text)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Err()).NotTo(HaveOccurred(), "it runs")
	g.Expect(p.Stop(soon)).To(BeFalse())
	g.Expect(p.Err()).NotTo(HaveOccurred(), "it was asked to")
	g.Eventually(func() bool { return gone(child) }).WithTimeout(soon).Should(BeTrue())

	p = start(t, "trap '' TERM; echo ready; while :; do sleep 1000; done")
	g.Eventually(func() (string, error) { return end(p.log) }).WithTimeout(soon).Should(Equal("ready"))
	g.Expect(p.Stop(50 * time.Millisecond)).To(BeTrue())
	g.Expect(gone(p.PID())).To(BeTrue())
	g.Expect(p.Err()).NotTo(HaveOccurred())
}

func TestDiesWithItsParent(t *testing.T) {
	g := NewWithT(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parent.Start()).To(Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	child, err := strconv.Atoi(strings.TrimSpace(line))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	g.Expect(gone(child)).To(BeFalse())
	g.Expect(parent.Process.Kill()).To(Succeed())
	_ = parent.Wait()
	g.Eventually(func() bool { return gone(child) }).WithTimeout(soon).Should(BeTrue())
}
