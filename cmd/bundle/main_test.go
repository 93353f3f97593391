package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

func run(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = program().Run(t.Context(), args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// programs returns a folder with scripts that say that they are Kubernetes v1.36.3. A
// program of another test that is started meanwhile would keep a script open, and the
// script could not be executed.
func programs(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.Mkdir(filepath.Join(folder, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, output := range map[string]string{"kubeadm": "v1.36.3", "kubectl": "Client Version: v1.36.3", "kubelet": "Kubernetes v1.36.3"} {
		if err := os.WriteFile(filepath.Join(folder, "bin", name), []byte("#!/bin/sh\necho "+output+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args     []string
		status   int
		out, err string
	}{
		"help":                 {args: []string{"--help"}, out: "Commands:"},
		"help of build":        {args: []string{"build", "--help"}, out: "--version"},
		"help of show":         {args: []string{"show", "-h"}, out: "bundle show FILE [flags]"},
		"nothing":              {status: subcommand.ExitUsage, err: "Usage:"},
		"unknown command":      {args: []string{"fly"}, status: subcommand.ExitUsage, err: `no command "fly"`},
		"unknown flag":         {args: []string{"show", "--fly"}, status: subcommand.ExitUsage, err: "--fly"},
		"extra argument":       {args: []string{"build", "x"}, status: subcommand.ExitUsage, err: `"x"`},
		"no version":           {args: []string{"build", "--from", "x", "--output", "y"}, status: subcommand.ExitUsage, err: "--version is missing"},
		"no folder":            {args: []string{"build", "--version", "v1.36.3", "--output", "y"}, status: subcommand.ExitUsage, err: "--from is missing"},
		"no output":            {args: []string{"build", "--version", "v1.36.3", "--from", "x"}, status: subcommand.ExitUsage, err: "--output is missing"},
		"no such folder":       {args: []string{"build", "--version", "v1.36.3", "--from", "/does/not/exist", "--output", "y"}, status: subcommand.ExitFailure, err: "no such file"},
		"show without file":    {args: []string{"show"}, status: subcommand.ExitUsage, err: "one bundle"},
		"show no such file":    {args: []string{"show", "/does/not/exist"}, status: subcommand.ExitFailure, err: "no such file"},
		"show something":       {args: []string{"show", text}, status: subcommand.ExitFailure, err: text + ": reading the bundle"},
		"show in another form": {args: []string{"show", text, "-o", "xml"}, status: subcommand.ExitUsage, err: "use text or json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, out, errs := run(t, test.args...)
			if status != test.status || !strings.Contains(out, test.out) || !strings.Contains(errs, test.err) {
				t.Errorf("status %d, printed %q, complained %q", status, out, errs)
			}
		})
	}
}

func TestCommandsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/bundles.md")
	if err != nil {
		t.Fatal(err)
	}
	_, help, _ := run(t, "--help")
	commands := regexp.MustCompile(`(?m)^  ([a-z]+)  `).FindAllStringSubmatch(help, -1)
	if len(commands) < 2 {
		t.Fatalf("found %d commands in\n%s", len(commands), help)
	}
	for _, command := range commands {
		if !strings.Contains(string(text), "bundle "+command[1]+" ") {
			t.Errorf("docs/bundles.md lacks the command %s", command[1])
		}
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	from, folder := programs(t), t.TempDir()
	path := filepath.Join(folder, "bundle")
	args := []string{"build", "--version", "v1.36.3", "--arch", runtime.GOARCH, "--from", from, "--output", path}
	status, out, errs := run(t, args...)
	if status != 0 {
		t.Fatalf("status %d, complained %q", status, errs)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	want := fmt.Sprintf("version: v1.36.3\nbundles:\n  - architecture: %s\n    sha256: %s\n    sizeBytes: %d\n", runtime.GOARCH, digest, len(data))
	if out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	for _, name := range bundle.Required() {
		if !strings.Contains(errs, " B  bin/"+name+"\n") {
			t.Errorf("the progress is %q", errs)
		}
	}
	// Once more, over the first one.
	if status, again, _ := run(t, args...); status != 0 || again != want {
		t.Errorf("status %d, printed %q", status, again)
	}
	if got := names(t, folder); !slices.Equal(got, []string{"bundle"}) {
		t.Errorf("the folder has %v", got)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bundle")
	if status, _, errs := run(t, "build", "--version", "v1.36.3", "--from", programs(t), "--output", path); status != 0 {
		t.Fatalf("status %d, complained %q", status, errs)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	status, out, errs := run(t, "show", path)
	if status != 0 || errs != "" {
		t.Errorf("status %d, complained %q", status, errs)
	}
	for _, text := range []string{"v1.36.3", runtime.GOARCH, hex.EncodeToString(sum[:]), "bin/kubelet  Program  /usr/local/bin/kubelet  0755  34"} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
	status, out, _ = run(t, "show", path, "--output", "json")
	var m bundle.Manifest
	if err := json.Unmarshal([]byte(out), &m); status != 0 || err != nil || m.Check(bundle.DefaultLimits()) != nil || len(m.Files) != 3 {
		t.Errorf("status %d, printed %q, %v", status, out, err)
	}

	if err := os.Truncate(path, int64(len(data)-1)); err != nil {
		t.Fatal(err)
	}
	if status, out, errs = run(t, "show", path); status != subcommand.ExitFailure || out != "" || !strings.Contains(errs, path) {
		t.Errorf("a truncated bundle: status %d, printed %q, complained %q", status, out, errs)
	}
}

// A build that fails leaves no file, and an existing bundle as it was.
func TestBuildFails(t *testing.T) {
	t.Parallel()
	from, folder := programs(t), t.TempDir()
	path := filepath.Join(folder, "bundle")
	if err := os.WriteFile(path, []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "--version", "v1.36.4", "--from", from, "--output", path}
	if status, out, errs := run(t, args...); status != subcommand.ExitFailure || out != "" || !strings.Contains(errs, "correct --version") {
		t.Errorf("another version: status %d, printed %q, complained %q", status, out, errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	// The first progress interrupts the build.
	interrupt := writerFunc(func() { cancel() })
	args[2] = "v1.36.3"
	if status := program().Run(ctx, args, &out, interrupt); status != subcommand.ExitFailure || out.Len() > 0 {
		t.Errorf("interrupted: status %d, printed %q", status, out.String())
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "older" {
		t.Errorf("the older bundle is %q, %v", data, err)
	}
	if got := names(t, folder); !slices.Equal(got, []string{"bundle"}) {
		t.Errorf("the folder has %v", got)
	}
	args[len(args)-1] = filepath.Join(folder, "none", "bundle")
	if status, _, errs := run(t, args...); status != subcommand.ExitFailure || !strings.Contains(errs, "writing the bundle") {
		t.Errorf("no folder for the output: status %d, complained %q", status, errs)
	}
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// Programs for another architecture can't be asked for their version.
func TestBuildForAnotherArchitecture(t *testing.T) {
	t.Parallel()
	from, path := programs(t), filepath.Join(t.TempDir(), "bundle")
	arch := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	status, out, errs := run(t, "build", "--version", "v1.36.4", "--arch", arch, "--from", from, "--output", path)
	if status != 0 || !strings.Contains(out, "architecture: "+arch) || !strings.Contains(errs, "Note: versions were not checked") {
		t.Errorf("status %d, printed %q, complained %q", status, out, errs)
	}
}
