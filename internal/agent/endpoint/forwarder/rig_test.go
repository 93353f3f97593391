package forwarder_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
)

// command is the argument that makes the test binary the forwarder's process.
const command = "endpoint"

// patience bounds the wait for something that will happen at once, also on a busy machine.
const patience = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == command {
		os.Exit(forwarder.Main(os.Args[2], func() []string { return nil }))
	}
	// A process with the race detector sleeps for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// rig is a state directory.
type rig struct {
	*forwarder.Manager
	t    *testing.T
	port int32
}

func newRig(t *testing.T) *rig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The path of a Unix socket is limited to 107 bytes.
	dir, err := os.MkdirTemp("", "endpoint") //nolint:usetesting // t.TempDir is longer
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Manager: &forwarder.Manager{Dir: dir, Command: []string{self, command}}, t: t, port: freePort(t)}
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return r
}

// freePort returns a port at which only those listen that are told it, until the test ends.
func freePort(t *testing.T) int32 {
	t.Helper()
	var reserved ports.Set
	t.Cleanup(reserved.Release)
	port, err := reserved.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

// ensure writes the document and has the manager act on it.
func (r *rig) ensure(backends ...string) error {
	r.t.Helper()
	config := forwarder.Config{Host: "shop.example", Port: r.port, Backends: backends}
	text, err := json.Marshal(config)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, forwarder.Document), text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return r.Ensure(r.t.Context(), config)
}

func (r *rig) mustEnsure(backends ...string) {
	r.t.Helper()
	if err := r.ensure(backends...); err != nil {
		r.t.Fatal(err)
	}
}

// serve starts an API server that sends its name, and then back what it gets. It returns
// its address.
func serve(t *testing.T, name string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer stop()
				defer func() { _ = conn.Close() }()
				if _, err := io.WriteString(conn, name+"\n"); err == nil {
					_, _ = io.Copy(conn, conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		running.Wait()
	})
	return listener.Addr().String()
}

// client is a connection of a program.
type client struct {
	net.Conn
	*bufio.Reader
}

func (c client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// connect connects to the endpoint, and returns the name of the API server.
func (r *rig) connect() (c client, name string) {
	r.t.Helper()
	c, name, err := r.tryConnect()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c, name
}

// tryConnect is connect for any goroutine. The caller closes the connection.
func (r *rig) tryConnect() (c client, name string, err error) {
	conn, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", forwarder.Config{Port: r.port}.Address())
	if err != nil {
		return client{}, "", err
	}
	c = client{conn, bufio.NewReader(conn)}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return c, "", err
	}
	name, err = c.ReadString('\n')
	return c, name, err
}

func (c client) works(t *testing.T) bool {
	t.Helper()
	if _, err := io.WriteString(c.Conn, "hello\n"); err != nil {
		return false
	}
	line, err := c.ReadString('\n')
	return err == nil && line == "hello\n"
}

// only returns the one process that runs.
func (r *rig) only() int {
	r.t.Helper()
	pids := r.Processes()
	if len(pids) != 1 {
		r.t.Fatalf("processes %v", pids)
	}
	return pids[0]
}

// watch waits until the process no longer accepts connections.
func (r *rig) watch() <-chan error {
	r.t.Helper()
	ended, watching := make(chan error, 1), make(chan error, 1)
	go func() { ended <- r.Watch(r.t.Context(), func() { watching <- nil }) }()
	await(r.t, "the process is watched", watching)
	return ended
}

func await(t *testing.T, what string, event <-chan error) {
	t.Helper()
	select {
	case err := <-event:
		if err != nil {
			t.Errorf("waiting until %s: %v", what, err)
		}
	case <-time.After(patience):
		t.Fatalf("timed out waiting until %s", what)
	}
}
