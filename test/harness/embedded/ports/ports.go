package ports

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Set is a set of reserved ports. The zero value is empty. It is not safe for concurrent use.
type Set struct {
	sockets []int
}

// Reserve reserves a port that is free on all IPv4 addresses until Release.
func (s *Set) Reserve() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("reserving a port: making a socket: %w", err)
	}
	port, err := bind(fd)
	if err != nil {
		return 0, fmt.Errorf("reserving a port: %w", errors.Join(err, unix.Close(fd)))
	}
	s.sockets = append(s.sockets, fd)
	return port, nil
}

// bind binds a socket to a port that the kernel chooses. It sets SO_REUSEADDR afterwards: otherwise the kernel could
// choose a port that is reserved in the same way (net.ipv4.ip_autobind_reuse).
func bind(fd int) (int, error) {
	if err := unix.Bind(fd, &unix.SockaddrInet4{}); err != nil {
		return 0, fmt.Errorf("binding a socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, fmt.Errorf("sharing a port: %w", err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("asking for a port: %w", err)
	}
	inet, ok := address.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("asking for a port: got an address of type %T", address)
	}
	return inet.Port, nil
}

// Release releases all ports.
func (s *Set) Release() {
	for _, fd := range s.sockets {
		_ = unix.Close(fd)
	}
	s.sockets = nil
}
