package place

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// device is the name of the network device of a namespace.
const device = "link"

// namespace is a network namespace that lasts as long as the process or, if nothing is connected, until close. Sockets
// stay in the namespace in which they were made, so only making them needs the thread that is in it.
type namespace struct {
	ip   string
	work chan func()
	// packets are those that leave the namespace, and those that enter it.
	packets *os.File
}

// newNamespace makes a namespace with an address, and a route to its peer.
func newNamespace(ip, peer string) (*namespace, error) {
	n := &namespace{ip: ip, work: make(chan func())}
	made := make(chan error)
	go func() {
		// The thread is never unlocked, so that it ends with the goroutine: nobody else gets into the namespace.
		runtime.LockOSThread()
		err := n.enter(peer)
		made <- err
		if err != nil {
			return
		}
		for do := range n.work {
			do()
		}
	}()
	return n, <-made
}

func (n *namespace) enter(peer string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace: %w", err)
	}
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	if err := configure(tun, n.ip, peer); err != nil {
		return errors.Join(err, unix.Close(tun))
	}
	// Not earlier: a file that has no device yet never becomes readable.
	n.packets = os.NewFile(uintptr(tun), "tun")
	return nil
}

// configure makes the device and switches it and the loopback on.
func configure(tun int, ip, peer string) error {
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tun, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("making a network device: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	for _, address := range []struct {
		ioctl uint
		ip    string
	}{{unix.SIOCSIFADDR, ip}, {unix.SIOCSIFDSTADDR, peer}} {
		if err := request.SetInet4Addr(net.ParseIP(address.ip).To4()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, address.ioctl, request); err != nil {
			return fmt.Errorf("giving a network device the address %s: %w", address.ip, err)
		}
	}
	for _, name := range []string{device, "lo"} {
		up, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, up); err != nil {
			return fmt.Errorf("switching a network device on: %w", err)
		}
	}
	return nil
}

// close ends the thread. It must not be called twice, nor before the last Listen or Dial.
func (n *namespace) close() {
	close(n.work)
	_ = n.packets.Close()
}

// Listen implements Place.
func (n *namespace) Listen(ctx context.Context) (listener net.Listener, err error) {
	n.do(func() { listener, err = listen(ctx, n.ip, cubic) })
	return listener, err
}

// Dial implements Place.
func (n *namespace) Dial(ctx context.Context, address string) (conn net.Conn, err error) {
	n.do(func() { conn, err = dial(ctx, address, cubic) })
	return conn, err
}

// do calls a function in the namespace.
func (n *namespace) do(call func()) {
	done := make(chan struct{})
	n.work <- func() {
		defer close(done)
		call()
	}
	<-done
}

// cubic gives a socket Linux's default congestion control, whatever this machine has: others may take no notice of
// losses. Accepted connections have that of their listener.
func cubic(_, _ string, connection syscall.RawConn) error {
	var failure error
	err := connection.Control(func(fd uintptr) {
		failure = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
	return errors.Join(err, failure)
}
