package place

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A link carries data in both directions, as late as it should.
func TestLink(t *testing.T) {
	const roundTrip = 40 * time.Millisecond
	l, err := NewLink(roundTrip, 0, 1)
	if errors.Is(err, unix.EPERM) && os.Getenv("REQUIRE_NETWORK_NAMESPACES") == "" {
		t.Skip("NOT RUN: network namespaces for the slow link need root")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listener, err := l.Manager.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- conn
		_, _ = io.Copy(conn, conn)
	}()
	began := time.Now()
	conn, err := l.Host.Dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if took := time.Since(began); took < roundTrip {
		t.Errorf("connected after %s", took)
	}
	began = time.Now()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < roundTrip {
		t.Errorf("answered after %s", took)
	}
	_ = (<-accepted).Close()
	// The link is the only way.
	if conn, err := (Loopback{}).Dial(t.Context(), listener.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("the other end was reached past the link")
	}
}
