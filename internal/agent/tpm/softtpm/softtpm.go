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

// Start starts a TPM that nobody has used, which ends with the test. A test
// fails without swtpm, rather than to pass without a TPM.
func Start(t *testing.T) tpm.Device {
	t.Helper()
	program, err := exec.LookPath("swtpm")
	if err != nil {
		t.Fatal("there is no swtpm: install Debian's package swtpm")
	}
	ours, its, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// It ends when its socket is closed.
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, "socket", "--tpm2", "--tpmstate", "dir="+dir,
		"--fd", "3", "--flags", "not-need-init,startup-clear")
	command.ExtraFiles = []*os.File{its}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = its.Close()
	t.Cleanup(func() {
		_ = ours.Close()
		_ = command.Wait()
	})
	shared := &connection{TPM: transport.FromReadWriter(ours)}
	return tpm.Device{Path: dir, Open: func(string) (transport.TPMCloser, error) {
		shared.mu.Lock()
		return shared, nil
	}}
}

func socketPair() (ours, its *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket for the TPM: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "tpm"), os.NewFile(uintptr(pair[1]), "swtpm"), nil
}

// connection belongs to one user from Open to Close, as one of the kernel's
// resource manager does.
type connection struct {
	transport.TPM

	mu sync.Mutex
}

func (c *connection) Close() error {
	c.mu.Unlock()
	return nil
}
