package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// maxBinary is the size that an edge host is asked for at most.
const maxBinary = 15 << 20

func run(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = dispatch(t.Context(), args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func TestStatuses(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(broken, []byte("servres: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args     []string
		status   int
		out, err string
	}{
		"help":             {args: []string{"--help"}, out: "Commands:"},
		"help of run":      {args: []string{"run", "--help"}, out: "--config"},
		"version":          {args: []string{"version"}, out: "elemental-agent v"},
		"version flag":     {args: []string{"--version"}, out: "elemental-agent v"},
		"nothing":          {status: subcommand.ExitUsage, err: "Usage:"},
		"unknown command":  {args: []string{"fly"}, status: subcommand.ExitUsage, err: `no command "fly"`},
		"unknown flag":     {args: []string{"run", "--fly"}, status: subcommand.ExitUsage, err: "--fly"},
		"extra argument":   {args: []string{"version", "x"}, status: subcommand.ExitUsage, err: `"x"`},
		"no configuration": {args: []string{"run", "--config", "/does/not/exist"}, status: subcommand.ExitUsage, err: "there is no configuration"},
		"bad configuration": {
			args: []string{"enrol", "--config", broken}, status: subcommand.ExitUsage, err: "servres",
		},
		"reset without --yes": {args: []string{"reset"}, status: subcommand.ExitUsage, err: "--yes"},
		"apply without file":  {args: []string{"apply"}, status: subcommand.ExitUsage, err: "one file"},
		"apply missing file":  {args: []string{"apply", "/does/not/exist"}, status: subcommand.ExitFailure, err: "no such file"},
		"bad output":          {args: []string{"status", "--output", "xml"}, status: subcommand.ExitUsage, err: "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := run(t, test.args...)
			if status != test.status || !strings.Contains(out, test.out) || !strings.Contains(errs, test.err) {
				t.Errorf("status %d, printed %q, complained %q", status, out, errs)
			}
		})
	}
}

func TestCommandsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, help, _ := run(t, "--help")
	commands := regexp.MustCompile(`(?m)^  ([a-z]+)  `).FindAllStringSubmatch(help, -1)
	if len(commands) < 5 {
		t.Fatalf("found %d commands in\n%s", len(commands), help)
	}
	for _, command := range commands {
		if !regexp.MustCompile("`" + command[1] + "[` ]").Match(text) {
			t.Errorf("docs/agent.md lacks the command %s", command[1])
		}
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "made")
	data := "## template: jinja\n#cloud-config\nwrite_files:\n- path: " + file +
		"\n  content: secret\nruncmd:\n- echo {{ ds.meta_data.local_hostname }}\n"
	path := filepath.Join(dir, "bootstrap.yaml")
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := run(t, "apply", "--dry-run", "--hostname", "edge-7", path)
	if status != 0 || !strings.Contains(out, file) || !strings.Contains(out, "echo edge-7") || strings.Contains(out, "secret") {
		t.Errorf("status %d, printed %q, complained %q", status, out, errs)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file was written")
	}
}

// The program is what it promises to be: small, static, and without the
// libraries that make it big.
func TestBinary(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	deps, err := exec.CommandContext(ctx, "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(deps)) {
		for _, heavy := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/kube-vip/", "cluster-api-provider-elemental/api", "cluster-api-provider-elemental/internal/server"} {
			if strings.Contains(dep, heavy) {
				t.Errorf("depends on %s", strings.TrimSpace(dep))
			}
		}
	}
	binary := filepath.Join(t.TempDir(), "elemental-agent")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=v1.2.3", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > maxBinary {
		t.Errorf("has %d bytes, more than %d", info.Size(), maxBinary)
	}
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "elemental-agent v1.2.3 linux/") {
		t.Errorf("says %q: %v", out, err)
	}
}
