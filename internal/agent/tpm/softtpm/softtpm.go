package softtpm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
)

// required is the environment variable that makes tests fail without swtpm.
const required = "REQUIRE_SWTPM"

// Start starts a new TPM that ends with the test. Without swtpm the test is skipped, or
// fails if the environment variable REQUIRE_SWTPM is set, as make ci does.
func Start(t *testing.T) tpm.Device {
	t.Helper()
	program, err := exec.LookPath("swtpm")
	if err != nil && os.Getenv(required) != "" {
		t.Fatal("there is no swtpm: install Debian's package swtpm")
	}
	if err != nil {
		t.Skip("NOT RUN: there is no swtpm: install Debian's package swtpm")
	}
	testEnd, tpmEnd, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// swtpm ends when its socket is closed.
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, "socket", "--tpm2", "--tpmstate", "dir="+dir,
		"--fd", "3", "--flags", "not-need-init,startup-clear")
	command.ExtraFiles = []*os.File{tpmEnd}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tpmEnd.Close()
	t.Cleanup(func() {
		_ = testEnd.Close()
		_ = command.Wait()
	})
	shared := &connection{TPM: transport.FromReadWriter(tpm.File{File: testEnd})}
	return tpm.Device{Path: dir, Open: func(string) (transport.TPMCloser, error) {
		shared.mu.Lock()
		return shared, nil
	}}
}

func socketPair() (testEnd, tpmEnd *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket for the TPM: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "tpm"), os.NewFile(uintptr(pair[1]), "swtpm"), nil
}

// connection has one user at a time, from Open to Close, like a connection to the
// kernel's resource manager.
type connection struct {
	transport.TPM

	mu sync.Mutex
}

func (c *connection) Close() error {
	c.mu.Unlock()
	return nil
}
