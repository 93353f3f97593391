package passthrough

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A caller that has sent everything still gets the whole answer.
func TestHalfClose_ByCaller(t *testing.T) {
	hello := clientHello("known.example.com")
	answer := bytes.Repeat([]byte("answer"), 100_000)
	r := start(t, dialTo(serve(t, func(conn *net.TCPConn) {
		sent, err := io.ReadAll(conn)
		if err == nil && bytes.Equal(sent, append(bytes.Clone(hello), "request"...)) {
			_, _ = conn.Write(answer)
		}
	})))
	conn := r.send(t, append(bytes.Clone(hello), "request"...))
	r.Expect(conn.CloseWrite()).To(Succeed())
	got, err := io.ReadAll(conn)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(got).To(Equal(answer))
	r.waitForOpen(0, 0)
	r.Expect(testutil.ToFloat64(r.metrics.toCluster)).To(BeEquivalentTo(len(hello) + len("request")))
	r.Expect(testutil.ToFloat64(r.metrics.fromCluster)).To(BeEquivalentTo(len(answer)))
}

// An API server that has sent everything still gets the rest of the caller's data.
func TestHalfClose_ByAPIServer(t *testing.T) {
	hello := clientHello("known.example.com")
	received := make(chan int, 1)
	r := start(t, dialTo(serve(t, func(conn *net.TCPConn) {
		_ = conn.CloseWrite()
		n, err := io.Copy(io.Discard, conn)
		if err == nil {
			received <- int(n)
		}
	})))
	conn := r.send(t, hello)
	_, err := conn.Read(make([]byte, 1))
	r.Expect(err).To(MatchError(io.EOF))
	rest := make([]byte, 1_000_000)
	_, err = conn.Write(rest)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(conn.CloseWrite()).To(Succeed())
	r.Eventually(received).WithTimeout(patience).Should(Receive(Equal(len(hello) + len(rest))))
	r.waitForOpen(0, 0)
}

// wholeConn is a connection that can't be closed for writing only, such as a stream of a
// tunnel.
type wholeConn struct{ net.Conn }

// If the end of one direction can't be passed on, it is the end of both.
func TestHalfClose_NotPossible(t *testing.T) {
	for name, callerEnds := range map[string]bool{"caller ends": true, "API server ends": false} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			r := start(t, routerFunc(func(context.Context, string) (net.Conn, error) { return wholeConn{near}, nil }))
			hello := clientHello("known.example.com")
			conn := r.send(t, hello)
			_, err := io.ReadFull(far, make([]byte, len(hello)))
			r.Expect(err).NotTo(HaveOccurred())
			if callerEnds {
				r.Expect(conn.CloseWrite()).To(Succeed())
				_, err = far.Read(make([]byte, 1))
			} else {
				r.Expect(far.Close()).To(Succeed())
				_, err = conn.Read(make([]byte, 1))
			}
			r.Expect(err).To(MatchError(io.EOF))
			r.waitForOpen(0, 0)
		})
	}
}

// The reset of one side ends the other.
func TestReset(t *testing.T) {
	hello := clientHello("known.example.com")
	ended := make(chan struct{})
	r := start(t, dialTo(serve(t, func(conn *net.TCPConn) {
		echo(hello)(conn)
		ended <- struct{}{}
	})))
	conn := r.send(t, hello)
	r.expectEcho(conn, "before")
	r.Expect(conn.SetLinger(0)).To(Succeed())
	r.Expect(conn.Close()).To(Succeed())
	r.Eventually(ended).WithTimeout(patience).Should(Receive())
	r.waitForOpen(0, 0)
}

// Data of any size arrives unchanged, in both directions at the same time.
func TestData(t *testing.T) {
	hello := clientHello("known.example.com")
	r := start(t, dialTo(serve(t, echo(hello))))
	conn := r.send(t, hello)
	data := make([]byte, 3_000_000)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(100_000))
			if _, err := conn.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		_ = conn.CloseWrite()
	})
	got, err := io.ReadAll(conn)
	sending.Wait()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(bytes.Equal(got, data)).To(BeTrue())
	r.waitForOpen(0, 0)
}

// stalling is a connection whose peer takes nothing: Write blocks until it is closed.
type stalling struct {
	net.Conn
	stalled chan<- struct{}
	closed  chan struct{}
	once    sync.Once
}

func (s *stalling) Write([]byte) (int, error) {
	s.stalled <- struct{}{}
	<-s.closed
	return 0, syscall.EPIPE
}

func (s *stalling) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// stallingListener accepts stalling connections first.
type stallingListener struct {
	net.Listener
	first   int32
	stalled chan struct{}
	count   atomic.Int32
}

func (l *stallingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.count.Add(1) <= l.first {
		conn = &stalling{Conn: conn, stalled: l.stalled, closed: make(chan struct{})}
	}
	return conn, err
}

// Callers that read nothing block no other one.
func TestSlowReaders(t *testing.T) {
	const slow = 100
	hello := clientHello("known.example.com")
	stalled := make(chan struct{}, slow)
	r := start(t, dialTo(serve(t, echo(hello))), func(o *Options) {
		o.Listener = &stallingListener{Listener: o.Listener, first: slow, stalled: stalled}
	})
	for range slow {
		r.send(t, append(bytes.Clone(hello), "text"...))
	}
	for range slow {
		r.Eventually(stalled).WithTimeout(patience).Should(Receive())
	}
	for range 10 {
		conn := r.send(t, hello)
		r.expectEcho(conn, "others are served")
		r.Expect(conn.Close()).To(Succeed())
	}
	r.waitForOpen(0, slow)
}
