//go:build simulator

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// trial is the program, with a folder of its own.
type trial struct {
	*WithT

	t                         *testing.T
	program, folder, checkout string
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	q := &trial{WithT: NewWithT(t), t: t, program: filepath.Join(t.TempDir(), "quickstart"), folder: filepath.Join(t.TempDir(), "folder")}
	var err error
	q.checkout, err = filepath.Abs("../../../..")
	q.Expect(err).NotTo(HaveOccurred())
	build := exec.Command("go", "build", "-o", q.program, ".")
	build.Stderr = t.Output()
	q.Expect(build.Run()).To(Succeed())
	t.Cleanup(func() { _ = q.command("down").Run() })
	return q
}

func (q *trial) command(args ...string) *exec.Cmd {
	return exec.Command(q.program, append(args, "--folder", q.folder, "--checkout", q.checkout)...)
}

func (q *trial) run(args ...string) string {
	q.t.Helper()
	var out bytes.Buffer
	command := q.command(args...)
	command.Stdout, command.Stderr = io.MultiWriter(&out, q.t.Output()), q.t.Output()
	q.Expect(command.Run()).To(Succeed())
	return out.String()
}

// nothingIsLeft of the world.
func (q *trial) nothingIsLeft() {
	q.t.Helper()
	q.Expect(q.folder).NotTo(BeAnExistingFile())
	q.Eventually(func() []string {
		var left []string
		processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range processes {
			if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(q.folder)) {
				left = append(left, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
			}
		}
		return left
	}, 10*time.Second, 100*time.Millisecond).Should(BeEmpty())
}

func TestQuickstart(t *testing.T) {
	q := newTrial(t)
	out := q.run("up")
	// In this order.
	rest := out
	for _, line := range []string{
		"Waiting for 6 hosts", "connected, free", "with a blank endpoint", "Endpoint: 127.", "Waiting for 3 control planes and 2 workers",
		"Cutting the power of host-", "Endpoint: 127.", "Waiting for the dead host's Machine to be replaced", " is gone", "Running on host-",
		"From nothing to a moved endpoint: ", "export KUBECONFIG=" + q.folder, q.program + " --folder " + q.folder + " down",
	} {
		var found bool
		_, rest, found = strings.Cut(rest, line)
		q.Expect(found).To(BeTrue(), line)
	}
	_, dead, _ := strings.Cut(out, "Cutting the power of ")
	dead, _, _ = strings.Cut(dead, ",")

	again := q.command("up")
	text, err := again.CombinedOutput()
	q.Expect(err).To(HaveOccurred())
	q.Expect(string(text)).To(ContainSubstring("runs already"))

	q.run("host", "PowerOn", dead)
	view := q.command("view")
	lines, err := view.StdoutPipe()
	q.Expect(err).NotTo(HaveOccurred())
	q.Expect(view.Start()).To(Succeed())
	defer time.AfterFunc(5*time.Minute, func() { _ = view.Process.Kill() }).Stop()
	reset := false
	for scanner := bufio.NewScanner(lines); !reset && scanner.Scan(); {
		reset = strings.Contains(scanner.Text(), "Host "+dead+": connected, free")
	}
	q.Expect(reset).To(BeTrue(), "the dead host is back, was reset, and is offered again")
	q.Expect(view.Process.Signal(os.Interrupt)).To(Succeed())
	q.Expect(view.Wait()).To(Succeed())

	q.run("down")
	q.nothingIsLeft()
}

// An interrupt removes everything, whenever it comes.
func TestInterrupt(t *testing.T) {
	q := newTrial(t)
	for _, at := range []string{"Starting etcd", "Waiting for 6 hosts"} {
		up := q.command("up")
		lines, err := up.StdoutPipe()
		q.Expect(err).NotTo(HaveOccurred())
		q.Expect(up.Start()).To(Succeed())
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			t.Log(scanner.Text())
			if strings.Contains(scanner.Text(), at) {
				q.Expect(up.Process.Signal(syscall.SIGINT)).To(Succeed())
			}
		}
		q.Expect(up.Wait()).To(MatchError("exit status 130"))
		q.nothingIsLeft()
	}
}
