package tpm_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
)

// Go's runtime sends signals to its own threads, also to one that waits for the TPM.
func TestSignalsDoNotInterruptTheTPM(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "tpm"), os.NewFile(uintptr(pair[1]), "device")
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	thread, ended := make(chan int, 1), make(chan error, 1)
	response := []byte{0x80, 0x01, 0, 0, 0, 10, 0, 0, 0, 0}
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		got, err := transport.FromReadWriter(tpm.File{File: ours}).Send([]byte("command"))
		if err == nil && !bytes.Equal(got, response) {
			err = fmt.Errorf("got %x", got)
		}
		ended <- err
	}()
	id := <-thread
	if _, err := theirs.Read(make([]byte, 100)); err != nil { // the command: the thread waits from now on
		t.Fatal(err)
	}
	for range 20 {
		for !isAsleep(t, id) {
			runtime.Gosched()
		}
		if err := unix.Tgkill(os.Getpid(), id, unix.SIGURG); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := theirs.Write(response); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// isAsleep reports whether a thread of this process sleeps in the kernel.
func isAsleep(t *testing.T, thread int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "S")
}
