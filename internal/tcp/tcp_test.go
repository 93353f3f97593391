package tcp

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The options are read back from the kernel at both ends of a connection.
func TestSocketOptionsOfBothEnds(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dialed, err := Dialer(time.Second).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dialed.Close() }()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	within, err := SiteDialer(time.Second).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = within.Close() }()
	for end, test := range map[string]struct {
		conn                          net.Conn
		idle, interval, probes, limit int
	}{
		"dialed": {dialed, 45, 5, 3, 60000}, "accepted": {accepted, 45, 5, 3, 60000}, "dialed within the site": {within, 4, 2, 3, 10000},
	} {
		conn := test.conn
		for name, option := range map[string]struct{ level, option, want int }{
			"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, test.idle},
			"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, test.interval},
			"TCP_KEEPCNT":      {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, test.probes},
			"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, test.limit},
		} {
			if got := read(t, conn, option.level, option.option); got != option.want {
				t.Errorf("%s has %s %d, want %d", end, name, got, option.want)
			}
		}
	}
}

func read(t *testing.T, conn net.Conn, level, option int) (value int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	controlled := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, option) })
	if controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	return value
}
