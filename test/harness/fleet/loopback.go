package fleet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// loopback returns where a host reaches its own forwarder. The address is this machine's as
// well, so what listens there on a virtual host listens in memory.
func loopback() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// hostsFile maps names to addresses on a host.
const hostsFile = "/etc/hosts"

// resolve replaces a name by the address that the host's /etc/hosts has for it. A virtual
// host has no other names.
func resolve(root, address string) (netip.AddrPort, error) {
	if at, err := netip.ParseAddrPort(address); err == nil {
		return at, nil
	}
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	text, err := os.ReadFile(filepath.Join(root, hostsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return netip.AddrPort{}, fmt.Errorf("reading the names that a host knows: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		entry, _, _ := strings.Cut(line, "#")
		fields := strings.Fields(entry)
		for i := 1; i < len(fields); i++ {
			if strings.EqualFold(fields[i], name) {
				return netip.ParseAddrPort(net.JoinHostPort(fields[0], port))
			}
		}
	}
	return netip.AddrPort{}, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

// loopbackListener listens at a port of a host's loopback address.
type loopbackListener struct {
	at       netip.AddrPort
	incoming chan net.Conn
	closed   chan struct{}
	close    sync.Once
	// gone is called by Close.
	gone func()
}

// Accept is net.Listener's.
func (l *loopbackListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.incoming:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is net.Listener's.
func (l *loopbackListener) Close() error {
	l.close.Do(func() {
		close(l.closed)
		l.gone()
	})
	return nil
}

// Addr is net.Listener's.
func (l *loopbackListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// connect returns a new connection to the listener. accepted returns what the listener
// accepts for its end.
func (l *loopbackListener) connect(done <-chan struct{}, accepted func(far *net.UnixConn) net.Conn) (net.Conn, error) {
	near, far, err := connPair()
	if err != nil {
		return nil, err
	}
	select {
	case l.incoming <- accepted(far):
		return near, nil
	case <-l.closed:
		err = syscall.ECONNREFUSED
	case <-done:
		err = os.ErrDeadlineExceeded
	}
	return nil, errors.Join(err, near.Close(), far.Close())
}

// listen listens at a port of the host's loopback address. A second listener at the port is
// an error.
func (n *network) listen(port int32) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[port] != nil {
		return nil, fmt.Errorf("listening at port %d of a virtual host: %w", port, syscall.EADDRINUSE)
	}
	l := &loopbackListener{
		at: netip.AddrPortFrom(loopback(), uint16(port)), incoming: make(chan net.Conn), closed: make(chan struct{}),
	}
	l.gone = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, port)
	}
	if n.listeners == nil {
		n.listeners = map[int32]*loopbackListener{}
	}
	n.listeners[port] = l
	return l, nil
}

// own returns what listens at the host's loopback address, or nil.
func (n *network) own(at netip.AddrPort) *loopbackListener {
	if at.Addr() != loopback() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off {
		return nil
	}
	return n.listeners[int32(at.Port())]
}

// connPair returns the two ends of a connection. Unlike those of net.Pipe, each direction
// ends on its own, and data is buffered.
func connPair() (near, far *net.UnixConn, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting a virtual host with itself: %w", err)
	}
	if near, err = connOf(ends[0]); err != nil {
		return nil, nil, errors.Join(err, unix.Close(ends[1]))
	}
	if far, err = connOf(ends[1]); err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	return near, far, nil
}

// connOf takes over a socket.
func connOf(socket int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(socket), "loopback of a virtual host")
	defer func() { _ = file.Close() }()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("connecting a virtual host with itself: %w", err)
	}
	if unixConn, ok := conn.(*net.UnixConn); ok {
		return unixConn, nil
	}
	return nil, errors.Join(fmt.Errorf("connecting a virtual host with itself: got a %T", conn), conn.Close())
}
