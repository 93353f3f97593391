package software_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/software"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// box is a host in a folder. No program of it is really run.
type box struct {
	t    *testing.T
	root string
	// prints are the outputs of programs by command line; errs those to the error output.
	prints, errs map[string]string
	// packages are the answers of package databases by command line; others fail as for a
	// file that no package owns.
	packages map[string]answer
	// bundled are the files that came with a bundle.
	bundled []string
	// ran are the command lines since the last call of take.
	ran []string
	now time.Time
	// onRun, if set, is called with each command line.
	onRun func(line string)

	finder *software.Finder
}

// answer is the answer of a package database.
type answer struct {
	output string
	err    error
}

// exitError is the error of a program that has ended.
type exitError struct {
	status int
	text   string
}

func (e exitError) Error() string { return fmt.Sprintf("exit status %d: %s", e.status, e.text) }

func (e exitError) ExitCode() int { return e.status }

func newBox(t *testing.T, names ...string) *box {
	t.Helper()
	b := &box{
		t: t, root: t.TempDir(), packages: map[string]answer{}, errs: map[string]string{"/opt/cni/bin/loopback": "CNI loopback plugin v1.7.1\nCNI protocol versions supported: 0.1.0\n"},
		now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		prints: map[string]string{
			"/usr/bin/kubelet --version":              "Kubernetes v1.36.3\n",
			"/usr/bin/kubeadm version --output short": "v1.36.3\n",
			"/usr/bin/kubectl version --client":       "Client Version: v1.36.3\nKustomize Version: v5.7.1\n",
			"/usr/bin/containerd --version":           "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7193e4e490e9fbdc236c0e811ccaba3376\n",
			"/usr/bin/crio --version":                 "crio version 1.34.1\nVersion:        1.34.1\n",
			"/usr/sbin/runc --version":                "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n",
		},
	}
	for _, name := range names {
		b.install(name, "program")
	}
	b.finder = software.New(software.Options{
		Root: b.root, Path: "relative:/usr/local/bin:/usr/sbin:/usr/bin", Commands: b, Probe: b.probe, Clock: b,
		IsBundled: func(path string) bool { return slices.Contains(b.bundled, path) },
	})
	return b
}

func (b *box) write(name, content string, mode os.FileMode) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) install(name, content string) { b.write(name, content, 0o755) }

func (b *box) config(name, content string) { b.write(name, content, 0o644) }

// link creates a symbolic link to a path of the box.
func (b *box) link(name, target string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b.root, target), path); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) find() protocol.Kubernetes {
	b.t.Helper()
	found, err := b.finder.Find(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// take returns the command lines of programs that ran.
func (b *box) take() []string {
	ran := b.ran
	b.ran = nil
	return ran
}

func (b *box) record(line string) {
	b.ran = append(b.ran, line)
	if b.onRun != nil {
		b.onRun(line)
	}
}

// probe implements software.Probe.
func (b *box) probe(ctx context.Context, path string, args ...string) (stdout, stderr string, err error) {
	line := strings.Join(append([]string{strings.TrimPrefix(path, b.root)}, args...), " ")
	b.record(line)
	if _, limited := ctx.Deadline(); !limited {
		b.t.Errorf("%s runs without a limit", line)
	}
	return b.prints[line], b.errs[line], ctx.Err()
}

// Run implements oscommand.Runner.
func (b *box) Run(ctx context.Context, _ string, args ...string) (string, error) {
	line := strings.Join(args, " ")
	b.record(line)
	if _, limited := ctx.Deadline(); !limited {
		b.t.Errorf("%s runs without a limit", line)
	}
	if known, found := b.packages[line]; found {
		return known.output, known.err
	}
	return "", fmt.Errorf("running env: %w", exitError{1, "no path found"})
}

func (b *box) Now() time.Time { return b.now }

func (b *box) Wait(context.Context, time.Duration) error { return errors.ErrUnsupported }
