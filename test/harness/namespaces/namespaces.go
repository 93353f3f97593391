package namespaces

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const (
	// inside is an environment variable of the process in the namespaces: the name of its test.
	inside = "TEST_INSIDE_NAMESPACES"
	// required is an environment variable. If it is set, the test fails where it can have no
	// namespaces.
	required = "REQUIRE_NETWORK_NAMESPACES"
)

// Enter runs the test again as root of new namespaces, and fails it if it fails there. It
// returns true only in that run:
//
//	if !namespaces.Enter(t, syscall.CLONE_NEWNET) {
//		return
//	}
//
// kinds are CLONE flags; see namespaces(7). The test must be one of the top level. A container
// may forbid namespaces. Then the test is skipped, which hack/test.sh says loudly.
func Enter(t *testing.T, kinds uintptr) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), inside+"="+t.Name())
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: kinds}
	if os.Geteuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := again.CombinedOutput()
	if errors.Is(err, syscall.EPERM) && os.Getenv(required) == "" {
		t.Skip("NOT RUN: namespaces are forbidden here")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Fatalf("in a namespace: %v: %s", err, out)
	}
	return false
}
