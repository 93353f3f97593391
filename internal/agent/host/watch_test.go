package host_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
)

func TestWatchingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- host.New(host.Options{}).WatchAddresses(ctx, func() {}) }()
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// insideNamespace is set in the process that has a network of its own.
const insideNamespace = "WATCH_TEST_IN_A_NAMESPACE"

// The test runs itself again with a network of its own, whose only interface
// is brought up and given an address.
func TestWatchingSeesAddressesOfTheKernel(t *testing.T) {
	if os.Getenv(insideNamespace) != "" {
		watchLoopback(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), insideNamespace+"=yes")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "seen the address") {
		t.Fatalf("%v: %s", err, out)
	}
}

func watchLoopback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	changes, result := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		result <- host.New(host.Options{Clock: hurried{}}).WatchAddresses(ctx, func() { changes <- struct{}{} })
	}()
	// The socket may not be there yet: the interface goes up and down until
	// something is seen.
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
	t.Log("seen the link")
	for range 100 {
		select {
		case <-changes:
			continue
		default:
		}
	}
	loopback(t, unix.SIOCSIFADDR, func(request *unix.Ifreq) error { return request.SetInet4Addr([]byte{192, 0, 2, 7}) })
	<-changes
	t.Log("seen the address")
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// hurried is a clock that doesn't wait.
type hurried struct{}

func (hurried) Now() time.Time { return time.Now() }

func (hurried) Wait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func loopback(t *testing.T, what uint, change func(*unix.Ifreq) error) {
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
		err = unix.IoctlIfreq(fd, what, request)
	}
	if err != nil {
		t.Fatal(err)
	}
}
