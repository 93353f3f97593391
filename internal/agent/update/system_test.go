package update_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
)

func TestSystem(t *testing.T) {
	t.Parallel()
	system, path := update.System{}, filepath.Join(t.TempDir(), "folder", "file")
	for _, part := range []struct {
		from             int64
		content, becomes string
	}{{0, "beginning and end", "beginning and end"}, {10, "more", "beginning more"}, {3, "", "beg"}} {
		f, err := system.Create(path, part.from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, part.content); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close(), system.SyncDir(filepath.Dir(path))); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if size, _ := system.Size(path); err != nil || string(got) != part.becomes || size != int64(len(got)) {
			t.Errorf("from %d: holds %q of %d bytes, %v", part.from, got, size, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if free, err := system.Free(filepath.Dir(path)); err != nil || free <= 0 {
		t.Errorf("%d bytes free, %v", free, err)
	}
	if err := system.Writable(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
	if err := system.Writable(path + "/none"); err == nil {
		t.Error("a folder that is not there can be written")
	}
	if _, err := system.Open(path + "-none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestProbeVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ script, version, fails string }{
		"an agent":         {script: `test "$1" = version && test -z "$HOME" && echo elemental-agent v1.2.3 linux/amd64`, version: "v1.2.3"},
		"another program":  {script: "echo something v1.2.3", fails: "is no agent"},
		"a silent program": {script: "exit 0", fails: "is no agent"},
		"a failing one":    {script: "exit 3", fails: "exit status 3"},
		"a talkative one":  {script: "echo elemental-agent v1; head -c 1000000 /dev/zero", version: "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+test.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			version, err := update.ProbeVersion(t.Context(), retry.System{}, path)
			if version != test.version || (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got %q, %v", version, err)
			}
		})
	}
}

// A file that is open for writing cannot be executed until it is closed.
func TestProbeWaitsForABusyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho elemental-agent v1.2.3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	version, err := update.ProbeVersion(t.Context(), closingClock{file: f}, path)
	if err != nil || version != "v1.2.3" {
		t.Errorf("got %q, %v", version, err)
	}
}

// closingClock closes the file at the first pause. Programs that parallel tests start
// may have inherited the file and keep it open until their exec, so pauses are real.
type closingClock struct {
	retry.System

	file *os.File
}

func (c closingClock) Wait(ctx context.Context, d time.Duration) error {
	_ = c.file.Close()
	return c.System.Wait(ctx, d)
}
