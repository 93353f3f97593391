package forwarder_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
)

func TestForwardsWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, second := serve(t, "first"), serve(t, "second")
	r.mustEnsure(first)
	if !r.Running() {
		t.Error("not running")
	}
	pid := r.only()
	c, name := r.connect()
	if name != "first\n" || !c.works(t) {
		t.Errorf("got %q", name)
	}
	// Other backends need no other process. Connections to those that are gone are closed.
	r.mustEnsure(second)
	if _, err := c.ReadByte(); err == nil {
		t.Error("still connected to a backend that was removed")
	}
	if _, name := r.connect(); name != "second\n" {
		t.Errorf("got %q", name)
	}
	if got := r.only(); got != pid {
		t.Errorf("process %d became %d", pid, got)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(r.Dir)
	if err != nil || len(entries) != 1 || r.Running() || len(r.Processes()) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

// Another port needs another socket.
func TestAnotherPort(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	backend := serve(t, "first")
	r.mustEnsure(backend)
	r.port = freePort(t)
	r.mustEnsure(backend)
	if _, name := r.connect(); name != "first\n" {
		t.Errorf("got %q", name)
	}
	r.only()
}

func TestProcessThatIsKilledOrHangs(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hangs": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			backend := serve(t, "first")
			r.mustEnsure(backend)
			former := r.only()
			ended := r.watch()
			if err := syscall.Kill(former, signal); err != nil {
				t.Fatal(err)
			}
			if signal == syscall.SIGKILL {
				await(t, "the agent has noticed", ended)
			} else if err := unix.Waitid(unix.P_PID, former, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
				t.Fatal(err)
			}
			r.mustEnsure(backend)
			if _, name := r.connect(); name != "first\n" || r.only() == former {
				t.Errorf("got %q", name)
			}
			if signal != syscall.SIGKILL {
				await(t, "the agent has noticed", ended)
			}
		})
	}
}

// A process without a document, as after a reset, ends.
func TestWithoutDocument(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mustEnsure(serve(t, "first"))
	ended := r.watch()
	if err := os.Remove(filepath.Join(r.Dir, forwarder.Document)); err != nil {
		t.Fatal(err)
	}
	if err := r.Ensure(t.Context(), forwarder.Config{Port: r.port}); err != nil {
		t.Fatal(err)
	}
	await(t, "the process has ended", ended)
	if err := r.Ensure(t.Context(), forwarder.Config{Port: r.port}); err == nil || !strings.Contains(err.Error(), forwarder.Document) {
		t.Errorf("got %v", err)
	}
}

func TestPortOfAnotherProgram(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", forwarder.Config{Port: r.port}.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ensure(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(string(comm))) {
		t.Errorf("got %v, want the name %s", err, comm)
	}
	if r.Running() {
		t.Error("running")
	}
	// A process that another test starts just now has the socket too, until it runs its program.
	syscall.ForkLock.RLock()
	_ = other.Close()
	syscall.ForkLock.RUnlock()
	r.mustEnsure()
}

// An agent that stops leaves nothing behind that waits for a process that does not end. It runs
// beside no other test, whose goroutines would count.
func TestStopLeavesNothingBehind(t *testing.T) {
	r := newRig(t)
	before := goleak.IgnoreCurrent()
	lock, err := os.OpenFile(filepath.Join(r.Dir, forwarder.LockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

func TestNotForUseByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cmd := exec.CommandContext(t.Context(), r.Command[0], command, r.Dir)
	if output, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(output), "not for use by hand") {
		t.Errorf("got %v: %s", err, output)
	}
}

// A plan cannot make the host listen anywhere else.
func TestThreat58_ListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mustEnsure()
	listening := 0
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || !strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", r.port)) || fields[3] != "0A" {
				continue
			}
			if listening++; !strings.HasPrefix(fields[1], "0100007F:") {
				t.Errorf("listens at %s", fields[1])
			}
		}
	}
	if listening != 1 {
		t.Errorf("%d sockets listen", listening)
	}
}

// exit is sent nil when a process has ended.
func exit(t *testing.T, pid int) <-chan error {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer func() { _ = unix.Close(fd) }()
		for {
			// The descriptor of a process is readable when that has ended.
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
			if !errors.Is(err, unix.EINTR) {
				ended <- err
				return
			}
		}
	}()
	return ended
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, to, text)
}

// writeProgram writes a file that can be executed at once. A child that another test starts meanwhile
// would inherit the open file, and a file that is open for writing cannot be executed.
func writeProgram(t *testing.T, to string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(to, text, 0o700); err != nil {
		t.Fatal(err)
	}
}

// The tunnel acknowledges a connection only if an API server has accepted it, although the
// process accepts all.
func TestDialOfTheAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	refusing := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r.mustEnsure(refusing)
	config := forwarder.Config{Port: r.port}
	if conn, err := r.Dial(t.Context(), config); err == nil {
		_ = conn.Close()
		t.Error("connected without an API server")
	}
	r.mustEnsure(refusing, serve(t, "first"))
	conn, err := r.Dial(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := client{conn, bufio.NewReader(conn)}
	if name, err := c.ReadString('\n'); name != "first\n" || !c.works(t) {
		t.Errorf("got %q, %v", name, err)
	}
	if _, name := r.connect(); name != "first\n" {
		t.Errorf("another program got %q", name)
	}
}

// An agent that has given up does not wait for a process that hangs.
func TestDialOfTheAgentIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mustEnsure(serve(t, "first"))
	pid := r.only()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if conn, err := r.Dial(ctx, forwarder.Config{Port: r.port}); err == nil {
		_ = conn.Close()
		t.Error("connected")
	}
	if ctx.Err() == nil {
		t.Error("gave up early")
	}
}
