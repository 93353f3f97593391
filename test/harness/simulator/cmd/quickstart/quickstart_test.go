//go:build simulator

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
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
	q.checkout, err = filepath.Abs("../../../../..")
	q.Expect(err).NotTo(HaveOccurred())
	build := exec.Command("go", "build", "-o", q.program, ".")
	build.Stderr = t.Output()
	q.Expect(build.Run()).To(Succeed())
	t.Cleanup(func() { _ = q.command("down").Run() })
	return q
}

// mark is the variable that all processes of a trial have, unless they are told what their environment is.
const mark = "QUICKSTART_TRIAL"

func (q *trial) command(args ...string) *exec.Cmd {
	command := exec.Command(q.program, append(args, "--folder", q.folder, "--checkout", q.checkout)...)
	command.Env = append(os.Environ(), mark+"="+q.folder)
	return command
}

func (q *trial) run(args ...string) string {
	q.t.Helper()
	var out bytes.Buffer
	command := q.command(args...)
	command.Stdout, command.Stderr = io.MultiWriter(&out, q.t.Output()), q.t.Output()
	q.Expect(command.Run()).To(Succeed())
	return out.String()
}

// nothingIsLeft of the simulation.
func (q *trial) nothingIsLeft() {
	q.t.Helper()
	q.Expect(q.folder).NotTo(BeAnExistingFile())
	q.Eventually(func() []string {
		var left []string
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, process := range processes {
			line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
			environment, _ := os.ReadFile(filepath.Join(process, "environ"))
			// What was started knows its folder; what is built does not.
			if bytes.Contains(line, []byte(q.folder)) || bytes.Contains(environment, []byte(mark+"="+q.folder)) {
				left = append(left, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
			}
		}
		return left
	}, time.Minute, 100*time.Millisecond).Should(BeEmpty())
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

// upUntil starts everything, does something once a line is said, and returns how it ended.
func (q *trial) upUntil(said string, then func(up *exec.Cmd)) error {
	q.t.Helper()
	up := q.command("up")
	lines, err := up.StdoutPipe()
	q.Expect(err).NotTo(HaveOccurred())
	q.Expect(up.Start()).To(Succeed())
	for scanner := bufio.NewScanner(lines); scanner.Scan(); {
		q.t.Log(scanner.Text())
		if strings.Contains(scanner.Text(), said) {
			then(up)
			said = "\n" // no line has that
		}
	}
	return up.Wait()
}

// An interrupt removes everything, whenever it comes.
func TestInterrupt(t *testing.T) {
	q := newTrial(t)
	for _, at := range []string{"Starting a management cluster", "Building programs", "Starting etcd", "Waiting for 6 hosts"} {
		q.Expect(q.upUntil(at, func(up *exec.Cmd) {
			q.Expect(up.Process.Signal(syscall.SIGINT)).To(Succeed())
		})).To(MatchError("exit status 130"), at)
		q.nothingIsLeft()
	}
}

// compiler is an environment variable. It makes this test program run as a compiler that does not end by itself. Its value
// is a file, to which the compiler writes what happens to it.
const compiler = "QUICKSTART_TRIAL_COMPILER"

func TestMain(m *testing.M) {
	if file := os.Getenv(compiler); file != "" {
		if err := compileForEver(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func compileForEver(file string) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt)
	if err := os.WriteFile(file, []byte("begun"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(file, []byte((<-told).String()), 0o600)
}

// The first time there are ten minutes in which nothing but compilers run. They are told to end as well: a simulation that
// takes no notice of its signal is killed, and they with it.
func TestFirstBuildIsGivenUp(t *testing.T) {
	q := newTrial(t)
	program, err := exec.LookPath("go")
	q.Expect(err).NotTo(HaveOccurred())
	hangs, happened := t.TempDir(), filepath.Join(t.TempDir(), "happened")
	script := "#!/bin/sh\n[ \"$1\" = build ] || exec '" + program + "' \"$@\"\nexec env " + compiler + "='" + happened + "' '" + os.Args[0] + "'\n"
	q.Expect(os.WriteFile(filepath.Join(hangs, "go"), []byte(script), 0o755)).To(Succeed())
	t.Setenv("PATH", hangs+":"+os.Getenv("PATH"))
	t.Setenv("ELEMENTAL_CACHE", t.TempDir())
	said := func() string {
		text, _ := os.ReadFile(happened)
		return string(text)
	}
	givenUp := func(status string, end func(up *exec.Cmd)) {
		t.Helper()
		q.Expect(os.RemoveAll(happened)).To(Succeed())
		q.Expect(q.upUntil("building etcd", func(up *exec.Cmd) {
			q.Eventually(said, time.Minute, 10*time.Millisecond).Should(Equal("begun"))
			end(up)
		})).To(MatchError(status))
		q.Expect(said()).To(Equal("interrupt"))
		q.nothingIsLeft()
	}
	givenUp("exit status 130", func(up *exec.Cmd) { q.Expect(up.Process.Signal(syscall.SIGINT)).To(Succeed()) })
	givenUp("exit status 1", func(*exec.Cmd) { q.run("down") })
	unfinished, err := filepath.Glob(filepath.Join(os.Getenv("ELEMENTAL_CACHE"), "tools", "store", "*"))
	q.Expect(err).NotTo(HaveOccurred())
	q.Expect(unfinished).To(BeEmpty())
}
