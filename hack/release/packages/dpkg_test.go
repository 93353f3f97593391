package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// state are files that the agent and its administrator make.
var state = []string{
	"etc/elemental/agent/config.yaml", "usr/bin/elemental-agent.previous", "var/lib/elemental/agent/key", "run/elemental-agent/lock",
}

// TestDpkg has dpkg install, upgrade, remove and purge the package, in a root folder of its own.
func TestDpkg(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Log("there is no dpkg here: only the content of the package is tested")
		return
	}
	deb, _ := write(t, "v1.2.3")
	upgrade, _ := write(t, "v1.2.4")
	root := t.TempDir()
	// The helper of systemd's units is of another package, which this root folder does not have.
	helpers, called := t.TempDir(), filepath.Join(t.TempDir(), "called")
	helper := "#!/bin/sh\necho \"$*\" >>" + called + "\n"
	if err := os.WriteFile(filepath.Join(helpers, "deb-systemd-helper"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "dpkg", append([]string{
			"--root=" + root, "--force-script-chrootless", "--force-not-root", "--force-depends", "--force-architecture", "--force-bad-path",
		}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+helpers+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("dpkg %v: %v\n%s", args, err, out)
		}
	}
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(root, name))
		return err == nil
	}

	dpkg("--install", deb)
	for _, name := range state {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte("of the host"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dpkg("--install", upgrade)
	for _, name := range append([]string{"usr/bin/elemental-agent", "etc/default/elemental-agent"}, state...) {
		if !has(name) {
			t.Errorf("the upgrade has removed %s", name)
		}
	}
	dpkg("--remove", "elemental-agent")
	for name, want := range map[string]bool{
		"usr/bin/elemental-agent": false, "usr/bin/elemental-agent.previous": false, "usr/lib/systemd/system/elemental-agent.service": false,
		"etc/default/elemental-agent": true, "etc/elemental/agent/config.yaml": true, "var/lib/elemental/agent/key": true,
	} {
		if has(name) != want {
			t.Errorf("after the removal %s is there: %t", name, !want)
		}
	}
	dpkg("--purge", "elemental-agent")
	if left := leftovers(t, root); len(left) > 0 {
		t.Errorf("the purge leaves %q", left)
	}
	calls, err := os.ReadFile(called)
	if err != nil {
		t.Fatal(err)
	}
	install := "unmask UNIT\n--quiet was-enabled UNIT\nenable UNIT\n"
	want := strings.ReplaceAll(install+install+"mask UNIT\npurge UNIT\nunmask UNIT\n", "UNIT", "elemental-agent.service")
	if string(calls) != want {
		t.Errorf("the helper was called with\n%swant\n%s", calls, want)
	}
}

// leftovers returns the files below a folder that are not dpkg's.
func leftovers(t *testing.T, root string) []string {
	t.Helper()
	var left []string
	err := filepath.WalkDir(root, func(file string, entry os.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, file)
		if err != nil || relErr != nil {
			return err
		}
		if entry.IsDir() && name == "var/lib/dpkg" {
			return filepath.SkipDir
		}
		if !entry.IsDir() && name != "var/log/dpkg.log" {
			left = append(left, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}
