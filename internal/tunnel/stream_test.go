package tunnel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestCarriesDataBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		exchange(t, conn, target, "request")
		exchange(t, target, conn, "answer")
		if got := conn.RemoteAddr().String(); got != apiServer {
			t.Errorf("the remote address is %s", got)
		}
		if n := r.session.Streams(); n != 1 {
			t.Errorf("%d streams, want 1", n)
		}
		_ = conn.Close()
		synctest.Wait()
		if n := r.session.Streams(); n != 0 {
			t.Errorf("%d streams after Close, want none", n)
		}
	})
}

func TestDialErrors(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		dial   Dialer
		want   error
		after  time.Duration
	}{
		"unknown target": {target: "etcd", want: ErrForbidden},
		"address":        {target: "127.0.0.1:6443", want: ErrForbidden},
		"host name":      {target: "example.com", want: ErrForbidden},
		"refused": {target: apiServer, want: ErrRefused, dial: func(context.Context, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}},
		"filtered": {target: apiServer, want: ErrFiltered, after: connectTimeout, dial: func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"timed out": {target: apiServer, want: ErrFiltered, dial: func(context.Context, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		}},
		"too many at the agent": {target: apiServer, want: ErrTooManyStreams, dial: func(context.Context, string) (net.Conn, error) {
			return nil, ErrTooManyStreams
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, c.dial)
				defer r.stop()
				began := time.Now()
				_, err := r.session.Dial(t.Context(), c.target)
				want(t, err, c.want)
				for _, other := range []error{ErrForbidden, ErrRefused, ErrFiltered, ErrTooManyStreams, ErrReset, ErrClosed, ErrAbsent} {
					if errors.Is(err, other) && !errors.Is(c.want, other) {
						t.Errorf("%v is %v as well", err, other)
					}
				}
				if got := time.Since(began); got != c.after {
					t.Errorf("failed after %s, want %s", got, c.after)
				}
				if n := r.session.Streams(); n != 0 {
					t.Errorf("%d streams, want none", n)
				}
				want(t, r.session.Err(), nil)
			})
		})
	}
}

// The agent checks names itself: a manager may be hostile.
func TestThreat11_AgentRefusesAddresses(t *testing.T) {
	h := &handler{dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("was dialed") }}
	for _, name := range []string{"", "10.0.0.1:22", "example.com", "[::1]:22", "a_b", "UPPER", string(bytes.Repeat([]byte("a"), maxTargetLength+1))} {
		_, err := h.dialTarget(t.Context(), name)
		want(t, err, ErrForbidden)
	}
}

func TestTooManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		var last net.Conn
		for range maxStreams {
			last, _ = r.open()
		}
		_, err := r.session.Dial(t.Context(), apiServer)
		want(t, err, ErrTooManyStreams)

		// The stream for questions is left.
		if _, err := last.Write([]byte("unanswered")); err != nil {
			t.Fatal(err)
		}
		_, before := r.manager.out.count()
		time.Sleep(time.Minute)
		if _, after := r.manager.out.count(); after != before+1 {
			t.Errorf("%d questions, want 1", after-before)
		}
		want(t, r.session.Err(), nil)

		_ = last.Close()
		synctest.Wait()
		r.open()
	})
}

func TestEndOfTargetEndsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		_, _ = target.Write([]byte("last words"))
		_ = target.Close()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "last words" {
			t.Fatalf("read %q, %v", got, err)
		}
		synctest.Wait()
		_, err := conn.Write([]byte("too late"))
		want(t, err, ErrReset)
		if n := r.session.Streams(); n != 0 {
			t.Errorf("%d streams, want none", n)
		}
	})
}

func TestResetOfTargetIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		exchange(t, target, conn, "some")
		target.reset()
		_, err := conn.Read(make([]byte, 1))
		want(t, err, ErrReset)
		want(t, r.session.Err(), nil)
	})
}

func TestCloseEndsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		blocked := make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			blocked <- err
		}()
		synctest.Wait()
		if _, err := conn.Write([]byte("goodbye")); err != nil {
			t.Fatal(err)
		}
		want(t, conn.Close(), nil)
		want(t, <-blocked, net.ErrClosed)
		if got, err := io.ReadAll(target); err != nil || string(got) != "goodbye" {
			t.Errorf("the target read %q, %v", got, err)
		}
		_, err := conn.Write([]byte("more"))
		want(t, err, net.ErrClosed)
		want(t, conn.SetDeadline(time.Time{}), net.ErrClosed)
		want(t, conn.Close(), net.ErrClosed)
		synctest.Wait()
		_, err = target.Write([]byte("answer"))
		want(t, err, syscall.EPIPE)
	})
}

// Close does not wait for ever for a target that reads nothing.
func TestCloseOfStalledStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := make(chan net.Conn, 1)
		r := start(t, func(context.Context, string) (net.Conn, error) {
			near, other := net.Pipe()
			far <- other
			return near, nil
		})
		defer r.stop()
		conn, err := r.session.Dial(t.Context(), apiServer)
		want(t, err, nil)
		target := <-far
		failed := make(chan error)
		go func() {
			_, err := conn.Write(make([]byte, 2*streamWindow))
			failed <- err
		}()
		synctest.Wait()
		want(t, conn.Close(), nil)
		want(t, <-failed, net.ErrClosed)
		time.Sleep(2*linger + time.Second)
		synctest.Wait()
		if n := r.session.Streams(); n != 0 {
			t.Errorf("%d streams, want none", n)
		}
		_, err = target.Write([]byte("answer"))
		want(t, err, io.ErrClosedPipe)
	})
}

func TestCloseWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		_, _ = conn.Write([]byte("question"))
		want(t, conn.(interface{ CloseWrite() error }).CloseWrite(), nil)
		if got, err := io.ReadAll(target); err != nil || string(got) != "question" {
			t.Fatalf("the target read %q, %v", got, err)
		}
		exchange(t, target, conn, "answer")
		_ = target.Close()
		_, err := conn.Read(make([]byte, 1))
		want(t, err, io.EOF)
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		began := time.Now()
		want(t, conn.SetReadDeadline(began.Add(time.Second)), nil)
		_, err := conn.Read(make([]byte, 1))
		want(t, err, os.ErrDeadlineExceeded)
		if got := time.Since(began); got != time.Second {
			t.Errorf("the read ended after %s", got)
		}
		// What arrives later is not lost.
		_, _ = target.Write([]byte("late"))
		want(t, conn.SetReadDeadline(time.Time{}), nil)
		got := make([]byte, 4)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "late" {
			t.Fatalf("read %q, %v", got, err)
		}
		// A deadline interrupts a call that waits already.
		interrupted := make(chan error)
		go func() {
			_, err := conn.Read(got)
			interrupted <- err
		}()
		synctest.Wait()
		want(t, conn.SetDeadline(time.Now()), nil)
		want(t, <-interrupted, os.ErrDeadlineExceeded)
		_, err = conn.Write(got)
		want(t, err, os.ErrDeadlineExceeded)
		want(t, r.session.Err(), nil)
	})
}

func TestCancelledDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, gone := make(chan struct{}), make(chan struct{})
		r := start(t, func(ctx context.Context, _ string) (net.Conn, error) {
			close(began)
			<-ctx.Done()
			close(gone)
			return nil, ctx.Err()
		})
		defer r.stop()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		_, err := r.session.Dial(ctx, apiServer)
		want(t, err, context.Canceled)
		<-gone
		synctest.Wait()
		if n := r.session.Streams(); n != 0 {
			t.Errorf("%d streams, want none", n)
		}
		want(t, r.session.Err(), nil)
	})
}

// The context of a dial has no power over its connection.
func TestConnectionOutlivesDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conn, err := r.session.Dial(ctx, apiServer)
		want(t, err, nil)
		target := <-r.accepted
		cancel()
		time.Sleep(time.Minute)
		exchange(t, conn, target, "request")
		exchange(t, target, conn, "answer")
	})
}
