package oscommand_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// program writes a program. No child that is started meanwhile inherits the open file.
func program(t *testing.T, script string) string {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProbe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ script, stdout, stderr, fails string }{
		"both outputs":    {script: `echo "v1 $1"; echo "v2 $2" >&2`, stdout: "v1 a\n", stderr: "v2 b\n"},
		"no environment":  {script: `echo "$HOME$USER$LANG."`, stdout: ".\n"},
		"no input":        {script: `cat; echo end`, stdout: "end\n"},
		"a failing one":   {script: "echo v1; exit 3", stdout: "v1\n", fails: "exit status 3"},
		"a talkative one": {script: "head -c 1000000 /dev/zero | tr '\\0' x", stdout: strings.Repeat("x", 4096)},
		"a loud failure":  {script: "head -c 1000000 /dev/zero | tr '\\0' x >&2", stderr: strings.Repeat("x", 4096)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, err := oscommand.Probe(t.Context(), retry.System{}, program(t, test.script), "a", "b")
			if stdout != test.stdout || stderr != test.stderr {
				t.Errorf("got %q and %q", stdout, stderr)
			}
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := oscommand.Probe(ctx, retry.System{}, program(t, "exec sleep 600")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestProbeOfNoProgram(t *testing.T) {
	t.Parallel()
	if _, _, err := oscommand.Probe(t.Context(), retry.System{}, filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a program that is not there was run")
	}
}
