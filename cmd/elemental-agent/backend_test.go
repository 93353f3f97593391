package main

import (
	"bytes"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/elemental"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// booted is a system booted into a mode, with the elemental program in PATH.
func booted(t *testing.T, mode string) elemental.System {
	t.Helper()
	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	for path, content := range map[string]string{
		"bin/elemental": "#!/bin/sh\necho \"$@\" >>" + root + "/calls\n", "proc/self/mountinfo": "",
		"sys/block/sda/size": "2048000", "sys/block/sda/dev": "8:0", "sys/block/sda/device/model": "Model", "run/elemental/" + mode + "_mode": "1",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return elemental.System{Root: root}
}

func TestBackend(t *testing.T) {
	for _, test := range []struct {
		name, mode, dir, wantDir string
		backend                  config.Backend
		elemental, fails         bool
	}{
		{name: "found", mode: "active", wantDir: elemental.StateDir, elemental: true},
		{name: "found, by name", mode: "active", backend: config.BackendAuto, wantDir: elemental.StateDir, elemental: true},
		{name: "not found", mode: "other", wantDir: state.DefaultDir},
		{name: "not wanted", mode: "active", backend: config.BackendLinux, wantDir: state.DefaultDir},
		{name: "insisted on", mode: "other", backend: config.BackendElemental, wantDir: elemental.StateDir, elemental: true},
		{name: "a directory of its own", mode: "active", dir: "/oem/mine", wantDir: "/oem/mine", elemental: true},
		{name: "a directory that a reset destroys", mode: "active", dir: "/var/lib/mine", fails: true},
		{name: "a directory that only looks like it", mode: "active", dir: "/oem/../var/lib/mine", fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := config.Config{Backend: test.backend, StateDir: state.DefaultDir}
			if test.dir != "" {
				settings.StateDir = test.dir
			}
			system, err := backend(&settings, booted(t, test.mode))
			if (err != nil) != test.fails || (system != nil) != test.elemental {
				t.Fatalf("got %+v, %v", system, err)
			}
			if err == nil && settings.StateDir != test.wantDir {
				t.Errorf("the state is in %s", settings.StateDir)
			}
		})
	}
}

func TestInstallCommand(t *testing.T) {
	const root = `
os:
  install: {device: /dev/sda, image: "oci:registry/os:1", then: PowerOff}
`
	system := booted(t, "live")
	path := configuration(t, root)
	calls := filepath.Join(system.Root, "calls")
	var out, errs bytes.Buffer
	s := subcommand.Streams{Out: &out, Err: &errs}
	if err := install(t.Context(), s, path, system, false, false); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("without --yes: %v", err)
	}
	if err := install(t.Context(), s, path, system, true, true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(calls); err == nil {
		t.Fatal("installed unasked")
	}
	if !strings.Contains(out.String(), "This erases disk sda") || !strings.Contains(out.String(), "Would run: elemental install --poweroff") {
		t.Errorf("says\n%s", &out)
	}
	if err := install(t.Context(), s, path, system, true, false); err != nil {
		t.Error(err)
	}
	if called, _ := os.ReadFile(calls); string(called) != "install --poweroff\n" {
		t.Errorf("called %q", called)
	}
	if err := install(t.Context(), s, path, booted(t, "active"), true, false); err == nil {
		t.Error("installs over a running system")
	}
}

// configuration is a file that Load takes, with more at its end.
func configuration(t *testing.T, more string) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	text := "servers: [https://192.0.2.1]\ntrustBundle: |\n  " + strings.ReplaceAll(strings.TrimSpace(bundle), "\n", "\n  ") + more
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
