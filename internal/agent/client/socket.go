package client

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundSending has the kernel give up what it could not deliver in sendTimeout:
// TCP_USER_TIMEOUT, RFC 5482.
func boundSending(_, _ string, connection syscall.RawConn) error {
	var failure error
	err := connection.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(sendTimeout.Milliseconds()))
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return fmt.Errorf("bounding the time in which data is sent: %w", err)
	}
	return nil
}
