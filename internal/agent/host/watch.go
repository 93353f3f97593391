package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// addressQuiet is how long addresses have to be quiet before they are looked
// at: an interface that comes up changes several times in a row.
const addressQuiet = 500 * time.Millisecond

// WatchAddresses calls changed after the kernel changed an address, a route or a
// link: any of them may be the network coming back. It sleeps in the kernel
// otherwise.
func (l *Linux) WatchAddresses(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
		unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return errors.Join(fmt.Errorf("subscribing to address changes: %w", err), unix.Close(fd))
	}
	// os.File has the runtime wait for the socket, without a thread.
	socket := os.NewFile(uintptr(fd), "netlink")
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer func() {
		if stop() {
			_ = socket.Close()
		}
	}()
	buffer := make([]byte, 16<<10)
	for {
		// What the messages say doesn't matter, nor that some were lost.
		_, err := socket.Read(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("reading address changes: %w", err)
		}
		if err := l.clock.Wait(ctx, addressQuiet); err != nil {
			return nil
		}
		changed()
	}
}
