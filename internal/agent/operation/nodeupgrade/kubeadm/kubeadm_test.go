package kubeadm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// TestMain is also what runs a script.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "run-script" {
		os.Exit(script.Main(os.Args[2]))
	}
	os.Exit(m.Run())
}

func newProgram(t *testing.T) kubeadm.Program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return kubeadm.Program{ScriptCommand: []string{self, "run-script"}, Clock: retry.System{}}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		want   []string
	}{
		"a success":         {script: `test "$1" = "it's 2" && test "$2" = '$HOME'`},
		"a failure":         {script: "echo first; echo the cause >&2; exit 7", want: []string{"status 7", "the cause"}},
		"a talkative one":   {script: "yes xxx | head -c 3000000; exit 1", want: []string{"status 1", "xxx"}},
		"a secret in a log": {script: "echo token: abcdef.0123456789abcdef; exit 1", want: []string{"status 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newProgram(t).Run(t.Context(), filepath.Join(t.TempDir(), "run"), []string{"/bin/sh", "-c", test.script, "sh", "it's 2", "$HOME"}, func(context.Context) {})
			if (err == nil) != (test.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, not %q", err, want)
				}
			}
			if err != nil && (len(err.Error()) > 800 || strings.Contains(err.Error(), "0123456789abcdef")) {
				t.Errorf("got %d bytes: %v", len(err.Error()), err)
			}
		})
	}
}

// A command outlives the one who waits for it. The next one waits for the same command.
func TestRunIsFoundAgain(t *testing.T) {
	t.Parallel()
	folder, fifo := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "count")
	p := newProgram(t)
	args := []string{"/bin/sh", "-c", "echo begun >>" + fifo + "; while ! test -e " + fifo + ".go; do sleep 0.05; done; exit 3"}
	ctx, cancel := context.WithCancel(t.Context())
	// The command has begun, as the watcher sees.
	err := p.Run(ctx, folder, args, func(context.Context) {
		if _, err := os.Stat(fifo); err == nil {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if err := os.WriteFile(fifo+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Run(t.Context(), folder, args, func(context.Context) {}); err == nil || !strings.Contains(err.Error(), "status 3") {
			t.Errorf("got %v", err)
		}
	}
	if text, err := os.ReadFile(fifo); err != nil || string(text) != "begun\n" {
		t.Errorf("it began more than once: %q, %v", text, err)
	}
}

func TestAbort(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "run")
	p := newProgram(t)
	if err := p.Abort(folder); err != nil {
		t.Errorf("before it was started: %v", err)
	}
	err := p.Run(t.Context(), folder, []string{"/bin/sh", "-c", "exec sleep 600"}, func(context.Context) {
		if err := p.Abort(folder); err != nil {
			t.Error(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %v", err)
	}
}
