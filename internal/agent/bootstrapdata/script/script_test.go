package script_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
)

// TestMain is also the runner, and the agent that a test kills.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "run-script":
			os.Exit(script.Main(os.Args[2]))
		case "agent":
			_, err := script.Run(context.Background(), os.Args[2], self(), "run-script")
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	// A runner with the race detector sleeps for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// self returns the absolute path of this program.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

type fixture struct {
	t    *testing.T
	dir  string
	work string
}

func prepare(t *testing.T, body string) fixture {
	t.Helper()
	f := fixture{t: t, dir: filepath.Join(t.TempDir(), "op", "runcmd"), work: t.TempDir()}
	if err := os.Mkdir(filepath.Dir(f.dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ready", "go"} {
		if err := syscall.Mkfifo(filepath.Join(f.work, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := script.Prepare(f.dir, script.Spec{Body: "#!/bin/sh\n" + body, WorkDir: f.work, Env: []string{"A=b", "PATH=/usr/bin:/bin"}, Sentinel: filepath.Join(f.work, "sentinel")})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f fixture) run(ctx context.Context) (script.Result, error) {
	return script.Run(ctx, f.dir, self(), "run-script")
}

func (f fixture) read(name string) string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.work, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// release lets a script continue that reads from the fifo "go".
func (f fixture) release() {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.work, "go"), []byte("\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// blocking is a script that counts its runs, writes to "ready" and waits for release.
const blocking = "echo run >> count; echo > ready; read x < go; echo done >> count; exit 7\n"

func TestRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, output string
		want         script.Result
	}{
		"success":            {"echo out; echo err >&2; echo $A; pwd >/dev/null", "out\nerr\nb\n", script.Result{}},
		"status":             {"exit 3", "", script.Result{ExitCode: 3}},
		"status of the last": {"false; echo x", "x\n", script.Result{}},
		"sentinel":           {"echo ok > sentinel; false", "", script.Result{ExitCode: 1, Sentinel: true}},
		"signal":             {"kill -9 $$", "", script.Result{ExitCode: 137}},
		"umask":              {"umask", "0022\n", script.Result{}},
		"empty input":        {"read x || echo none", "none\n", script.Result{}},
		"lock is private":    {"ls -l /proc/self/fd | grep '/lock$' || true", "", script.Result{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := prepare(t, c.body)
			for range 2 {
				got, err := f.run(t.Context())
				if err != nil || got != c.want {
					t.Fatalf("got %+v, %v; want %+v", got, err, c.want)
				}
			}
			if out, err := script.Output(f.dir); err != nil || string(out) != c.output {
				t.Errorf("got output %q, %v; want %q", out, err, c.output)
			}
		})
	}
}

func TestOutputIsCapped(t *testing.T) {
	t.Parallel()
	f := prepare(t, "echo first; i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; echo last")
	if _, err := f.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := script.Output(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	if len(text) > 600<<10 || !strings.HasPrefix(text, "first\n") || !strings.HasSuffix(text, "last\n") || !strings.Contains(text, "bytes left out") {
		t.Errorf("got %d bytes, from %q to %q", len(text), text[:10], text[len(text)-10:])
	}
}

// A background process keeps the output open. The result must not wait for it, and
// writing must not kill it.
func TestBackgroundProcess(t *testing.T) {
	t.Parallel()
	f := prepare(t, "( read x < go; echo late; echo alive > ready ) & echo early")
	got, err := f.run(t.Context())
	if err != nil || got.ExitCode != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if out, err := script.Output(f.dir); err != nil || string(out) != "early\n" {
		t.Errorf("got %q, %v", out, err)
	}
	f.release()
	if got := f.read("ready"); got != "alive\n" {
		t.Errorf("the background process did not survive: %q", got)
	}
}

func TestKilledAgentLeavesScriptRunning(t *testing.T) {
	t.Parallel()
	f := prepare(t, blocking)
	agent := exec.Command(self(), "agent", f.dir)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	f.read("ready")
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait() // killed
	f.release()
	got, err := f.run(t.Context())
	if err != nil || got.ExitCode != 7 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got := f.read("count"); got != "run\ndone\n" {
		t.Errorf("the script wrote %q, want one whole run", got)
	}
}

func TestCancelledWaitLeavesScriptRunning(t *testing.T) {
	t.Parallel()
	f := prepare(t, blocking)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		f.read("ready")
		cancel()
	}()
	if _, err := f.run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	f.release()
	if got, err := f.run(t.Context()); err != nil || got.ExitCode != 7 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got := f.read("count"); got != "run\ndone\n" {
		t.Errorf("the script wrote %q, want one whole run", got)
	}
}

// A power cut kills the runner and the script at the same time.
func TestInterruptedScriptIsNotRunAgain(t *testing.T) {
	t.Parallel()
	f := prepare(t, blocking)
	first := make(chan error)
	go func() {
		_, err := f.run(t.Context())
		first <- err
	}()
	f.read("ready")
	text, err := os.ReadFile(filepath.Join(f.dir, "started"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid < 2 {
		t.Fatalf("got pid %q", text)
	}
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-first; !errors.Is(err, script.ErrInterrupted) {
		t.Errorf("got %v, want %v", err, script.ErrInterrupted)
	}
	if _, err := f.run(t.Context()); !errors.Is(err, script.ErrInterrupted) {
		t.Errorf("got %v, want %v", err, script.ErrInterrupted)
	}
	if got := f.read("count"); got != "run\n" {
		t.Errorf("the script wrote %q, want one start", got)
	}
}

// If the agent is killed before the runner starts, a later Run starts the script.
func TestNotStartedRunsLater(t *testing.T) {
	t.Parallel()
	f := prepare(t, "echo run >> count")
	if _, err := script.Run(t.Context(), f.dir, "/bin/false"); err == nil || errors.Is(err, script.ErrInterrupted) {
		t.Fatalf("got %v, want the error of the runner", err)
	}
	if _, err := script.Run(t.Context(), f.dir); err == nil {
		t.Fatal("Run without a runner returned no error")
	}
	if got, err := f.run(t.Context()); err != nil || got.ExitCode != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got := f.read("count"); got != "run\n" {
		t.Errorf("the script wrote %q, want one start", got)
	}
}

func TestMainRefusesToBeCalledByHand(t *testing.T) {
	t.Parallel()
	f := prepare(t, "echo run >> count")
	if err := exec.Command(self(), "run-script", f.dir).Run(); err == nil {
		t.Error("Main succeeded without Run")
	}
	if _, err := os.Stat(filepath.Join(f.work, "count")); err == nil {
		t.Error("Main ran the script without Run")
	}
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	f := prepare(t, "echo x")
	if _, err := f.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil || len(entries) < 6 {
		t.Fatalf("got the files %v and the error %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}
