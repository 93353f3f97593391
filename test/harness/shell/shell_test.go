package shell

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asStarter has this program run a command line with Run and do nothing else.
const asStarter = "BE_A_STARTER"

func TestMain(m *testing.M) {
	if script := os.Getenv(asStarter); script != "" {
		if _, err := Run(context.Background(), "sh", "-c", script); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pipe is a file in which somebody who lives can be heard: it ends with the last program that writes to it.
func pipe(t *testing.T) (name string, await func(does string, end func())) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, func(does string, end func()) {
		t.Helper()
		f, err := os.Open(name) // returns when there is one
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		end()
		if err := f.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(f); err != nil {
			t.Errorf("what %s lives: %v", does, err)
		}
	}
}

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), "sh", "-c", "echo one; echo two; echo three >&2")
	if err != nil || out != "one\ntwo" {
		t.Errorf("got %q, %v", out, err)
	}
	out, err = Command{
		Args: []string{"sh", "-c", `cat; echo "$WORD"`}, Env: []string{"WORD=word"}, Stdin: strings.NewReader("in "),
	}.Run(t.Context())
	if err != nil || out != "in word" {
		t.Errorf("got %q, %v", out, err)
	}
	_, err = Run(t.Context(), "sh", "-c", "echo reason >&2; exit 3")
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 3: reason") {
		t.Errorf("got %v", err)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, "sleep", "60"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// What a program has started ends with it, even if it does not care for an interrupt.
func TestRunEndsAllWithContext(t *testing.T) {
	name, await := pipe(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		// A shell has what it runs in the background ignore interrupts.
		_, err := Run(ctx, "sh", "-c", "sleep 600 >"+name+" 2>&1 & wait")
		ended <- err
	}()
	await("was started", cancel)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Whoever is killed can't end what it has started: the kernel does.
func TestRunEndsWithItsParent(t *testing.T) {
	name, await := pipe(t)
	starter := exec.CommandContext(t.Context(), os.Args[0])
	starter.Env = append(os.Environ(), asStarter+"=exec sleep 600 >"+name)
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	await("was run", func() { _ = starter.Process.Kill() })
	if err := starter.Wait(); err == nil {
		t.Error("it was not killed")
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	if err := p.Step("Working", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no luck")
	if err := p.Step("Failing", func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if _, err := p.Write([]byte("one\n\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	var said []string
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(line, "] ")
		said = append(said, strings.TrimSpace(strings.Split(text, " took")[0]))
	}
	if got, want := strings.Join(said, "|"), "Working|Working:|Failing|one|two"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTail(t *testing.T) {
	for text, want := range map[string]string{"abc": "abc", "abcd": "…bcd"} {
		if got := tail(text, 3); got != want {
			t.Errorf("%s: got %s", text, got)
		}
	}
}
