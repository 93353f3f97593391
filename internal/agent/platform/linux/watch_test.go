package linux_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/namespaces"
)

func TestWatchEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- linux.New(linux.Options{}).WatchAddresses(ctx, func() {}) }()
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// The test runs in a new network namespace, whose only interface is loopback. There it brings
// loopback up and adds an address.
func TestWatchReportsChangesOfKernel(t *testing.T) {
	if !namespaces.Enter(t, syscall.CLONE_NEWNET) {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes, result := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		result <- linux.New(linux.Options{Clock: impatientClock{}}).WatchAddresses(ctx, func() { changes <- struct{}{} })
	}()
	// The watch may not have begun yet, so the interface goes up and down until a
	// change is reported.
	for up := true; len(changes) == 0; up = !up {
		flags := uint16(0)
		if up {
			flags = unix.IFF_UP
		}
		loopback(t, unix.SIOCSIFFLAGS, func(request *unix.Ifreq) error {
			request.SetUint16(flags)
			return nil
		})
	}
	<-changes
	t.Log("reported the link")
	for range 100 {
		select {
		case <-changes:
			continue
		default:
		}
	}
	loopback(t, unix.SIOCSIFADDR, func(request *unix.Ifreq) error { return request.SetInet4Addr([]byte{192, 0, 2, 7}) })
	<-changes
	t.Log("reported the address")
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// impatientClock is a clock that does not wait.
type impatientClock struct{}

func (impatientClock) Now() time.Time { return time.Now() }

func (impatientClock) Wait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// loopback makes a system call that changes the loopback interface.
func loopback(t *testing.T, call uint, change func(*unix.Ifreq) error) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err == nil {
		err = change(request)
	}
	if err == nil {
		err = unix.IoctlIfreq(fd, call, request)
	}
	if err != nil {
		t.Fatal(err)
	}
}
