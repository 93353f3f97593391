package tpm

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"
	"golang.org/x/sys/unix"
)

// File is the device file of a TPM. The library waits for the response of an *os.File itself, by poll(2), and
// returns an error if a signal interrupts that. Go's runtime sends signals to its own threads, and the kernel
// never restarts poll(2), see signal(7). The library does not wait for a File.
type File struct{ *os.File }

// Read waits for the response of the TPM, and reads it.
func (f File) Read(response []byte) (int, error) {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}} //nolint:gosec // the kernel numbers file descriptors by int
	for {
		_, err := unix.Poll(fds, -1)
		if err == nil {
			return f.File.Read(response)
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("waiting for the TPM: %w", err)
		}
	}
}

// openFile opens a device file.
func openFile(path string) (transport.TPMCloser, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeDevice == 0 {
		return nil, linuxtpm.ErrFileIsNotDevice
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return transport.FromReadWriteCloser(File{file}), nil
}
