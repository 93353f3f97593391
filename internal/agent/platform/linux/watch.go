package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// settleTime is the time between a change and the call of changed: an
// interface that comes up changes several times in a row.
const settleTime = 500 * time.Millisecond

// addressWatcher watches the kernel's network configuration.
type addressWatcher struct{ clock retry.Clock }

// WatchAddresses calls changed after an address, a route or a link changed: any
// of them may mean that the network is back. It returns when ctx ends.
func (w addressWatcher) WatchAddresses(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
		unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return errors.Join(fmt.Errorf("subscribing to address changes: %w", err), unix.Close(fd))
	}
	// With os.File the Go runtime polls the socket, so no thread blocks.
	socket := os.NewFile(uintptr(fd), "netlink")
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer func() {
		if stop() {
			_ = socket.Close()
		}
	}()
	buffer := make([]byte, 16<<10)
	for {
		// The content of messages does not matter, nor does the loss of some.
		_, err := socket.Read(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("reading address changes: %w", err)
		}
		if err := w.clock.Wait(ctx, settleTime); err != nil {
			return nil
		}
		changed()
	}
}
