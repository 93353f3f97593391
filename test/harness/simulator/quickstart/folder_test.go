package quickstart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
)

// simulationVariable is an environment variable. It makes this test program run as a simulation of
// a kind, in the folder that is its argument.
const simulationVariable = "QUICKSTART_TEST_SIMULATION"

// asked is the line that a simulation writes when it is told to end.
const asked = "I was asked to end"

func TestMain(m *testing.M) {
	if kind := os.Getenv(simulationVariable); kind != "" {
		if err := runAsSimulation(kind, Folder{Path: os.Args[1]}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runAsSimulation(kind string, f Folder) error {
	// A "deaf" simulation ignores SIGTERM.
	ended, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if strings.HasPrefix(kind, "deaf") {
		ended = context.Background()
	}
	wait := func() {
		<-ended.Done()
		fmt.Println(asked)
	}
	if strings.HasSuffix(kind, "late") {
		fmt.Println("I hold nothing yet")
		wait()
		return context.Cause(ended)
	}
	release, err := f.lock()
	if err != nil {
		return err
	}
	fmt.Println("I hold the folder")
	switch kind {
	case "broken":
		return errors.New("there is no etcd")
	case "starting":
	default:
		end, err := f.listen(func(what command) (Status, error) {
			if what.Host == "nobody" {
				return Status{}, errors.New("there is no host nobody")
			}
			return Status{PID: os.Getpid(), Kubeconfig: string(what.Action) + what.Host}, nil
		})
		if err != nil {
			return err
		}
		defer end()
	}
	wait()
	return release()
}

// start launches a simulation of a kind.
func start(t *testing.T, f Folder, kind string) (Status, []string, error) {
	t.Helper()
	t.Setenv(simulationVariable, kind)
	t.Cleanup(func() { _ = f.Down(context.Background()) })
	var said []string
	status, err := f.launch(t.Context(), os.Args[0], []string{f.Path}, func(line string) { said = append(said, line) })
	return status, said, err
}

func TestSimulationInBackground(t *testing.T) {
	g := NewWithT(t)
	// Longer than what the kernel takes for the address of a socket.
	f := Folder{Path: filepath.Join(t.TempDir(), strings.Repeat("long", 50))}
	g.Expect(f.Prepare()).To(Succeed())
	_, said, err := start(t, f, "good")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(said).To(Equal([]string{"I hold the folder"}))
	g.Expect(f.Prepare()).To(MatchError(ErrRuns))
	g.Expect(f.Do(t.Context(), remote.Reboot, "nobody")).To(MatchError("there is no host nobody"))
	g.Expect(f.Do(t.Context(), remote.Reboot, "host-1")).To(Succeed())
	_, said, err = start(t, f, "good")
	g.Expect(err).To(MatchError(ErrRuns))
	g.Expect(said[len(said)-1]).To(ContainSubstring("runs already"))
	g.Expect(f.Down(t.Context())).To(Succeed())
	g.Expect(f.Path).NotTo(BeADirectory())
	g.Expect(f.Down(t.Context())).To(Succeed(), "there is nothing any more")
	_, err = f.Status(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("make quickstart starts")))
}

func TestSimulationFailsToStart(t *testing.T) {
	g := NewWithT(t)
	f := Folder{Path: filepath.Join(t.TempDir(), "f")}
	g.Expect(f.Prepare()).To(Succeed())
	_, said, err := start(t, f, "broken")
	g.Expect(err).To(MatchError(ContainSubstring("whose last line says why")))
	g.Expect(said[len(said)-1]).To(Equal("there is no etcd"))
	// What it left does not hinder the next start.
	g.Expect(f.Prepare()).To(Succeed())
	g.Expect(f.Log()).NotTo(BeAnExistingFile())
}

// processes returns the IDs of processes whose command line contains the folder.
func processes(f Folder) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(f.Path)) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// When the start is cancelled, the simulation ends, even if it has not locked its folder, accepts
// no commands yet or ignores signals.
func TestCancelledStart(t *testing.T) {
	for _, kind := range []string{"late", "deaf and late", "starting"} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			f := Folder{Path: filepath.Join(t.TempDir(), "f"), grace: time.Minute}
			if kind == "deaf and late" {
				f.grace = 100 * time.Millisecond
			}
			g.Expect(f.Prepare()).To(Succeed())
			t.Setenv(simulationVariable, kind)
			ctx, cancel := context.WithCancel(t.Context())
			_, err := f.launch(ctx, os.Args[0], []string{f.Path}, func(string) { cancel() })
			g.Expect(err).To(MatchError(context.Canceled))
			g.Expect(processes(f)).To(BeEmpty())
			log, err := os.ReadFile(f.Log())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Contains(string(log), asked)).To(Equal(kind != "deaf and late"), string(log))
			g.Expect(f.Down(t.Context())).To(Succeed())
			g.Expect(f.Path).NotTo(BeADirectory())
		})
	}
}

// Down ends a simulation that is still starting after its starter has ended.
func TestDownDuringStart(t *testing.T) {
	g := NewWithT(t)
	f := Folder{Path: filepath.Join(t.TempDir(), "f")}
	g.Expect(f.Prepare()).To(Succeed())
	simulation := exec.CommandContext(t.Context(), os.Args[0], f.Path)
	simulation.Env = append(os.Environ(), simulationVariable+"=starting")
	said, err := simulation.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(simulation.Start()).To(Succeed())
	_, err = said.Read(make([]byte, 1)) // it holds the folder
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.Down(t.Context())).To(Succeed())
	g.Expect(simulation.Wait()).To(Succeed(), "it was not killed")
}

func TestUnresponsiveSimulationIsKilled(t *testing.T) {
	g := NewWithT(t)
	f := Folder{Path: filepath.Join(t.TempDir(), "f"), grace: 100 * time.Millisecond}
	g.Expect(f.Prepare()).To(Succeed())
	_, _, err := start(t, f, "deaf")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.Down(t.Context())).To(Succeed())
	g.Expect(f.Path).NotTo(BeADirectory())
}

// A folder that does not belong to a quickstart is not changed.
func TestForeignFolder(t *testing.T) {
	g := NewWithT(t)
	f := Folder{Path: t.TempDir()}
	file := filepath.Join(f.Path, "thesis.tex")
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	g.Expect(f.Prepare()).To(MatchError(ContainSubstring("name another one")))
	g.Expect(f.Down(t.Context())).To(MatchError(ContainSubstring("name another one")))
	g.Expect(file).To(BeAnExistingFile())
}
