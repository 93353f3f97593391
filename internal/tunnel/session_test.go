package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEndOfSessionEndsStreams(t *testing.T) {
	reason := errors.New("host is locked")
	for name, c := range map[string]struct {
		end     func(*rig)
		session []error
		agent   error
	}{
		"the manager closes":  {end: func(r *rig) { r.session.Close(reason) }, session: []error{ErrClosed, reason}, agent: ErrClosed},
		"the agent ends":      {end: func(r *rig) { r.cancel() }, session: []error{ErrClosed}, agent: context.Canceled},
		"the connection ends": {end: func(r *rig) { r.manager.reset() }, session: []error{ErrClosed}, agent: ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, nil)
				conn, target := r.open()
				failed := make(chan error, 2)
				go func() {
					_, err := conn.Read(make([]byte, 1))
					failed <- err
				}()
				dialing := make(chan error, 1)
				synctest.Wait()
				c.end(r)
				want(t, <-failed, c.session...)
				<-r.session.Done()
				want(t, r.session.Err(), c.session...)
				want(t, <-r.served, c.agent)
				if got, err := io.ReadAll(target); err != nil || len(got) != 0 {
					t.Errorf("the target read %q, %v", got, err)
				}
				_, err := conn.Write([]byte("late"))
				want(t, err, c.session...)
				go func() {
					_, err := r.session.Dial(t.Context(), apiServer)
					dialing <- err
				}()
				want(t, <-dialing, c.session...)
				synctest.Wait()
				if n := r.session.Streams(); n != 0 {
					t.Errorf("%d streams, want none", n)
				}
			})
		})
	}
}

// Dials that wait for the agent end with the session.
func TestEndOfSessionEndsDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := make(chan struct{})
		r := start(t, func(ctx context.Context, _ string) (net.Conn, error) {
			close(waiting)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		reason := errors.New("host is locked")
		go func() {
			<-waiting
			r.session.Close(reason)
		}()
		_, err := r.session.Dial(t.Context(), apiServer)
		want(t, err, ErrClosed, reason)
		want(t, <-r.served, ErrClosed)
	})
}

func TestSetupFails(t *testing.T) {
	larger := settings()
	larger.MaxReadFrameSize = 1 << 20
	fewer := settings()
	fewer.MaxConcurrentStreams = maxStreams
	answers := func(status int, config *http.HTTP2Config) func(net.Conn) {
		return func(conn net.Conn) {
			serveHTTP(conn, config, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		}
	}
	sends := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.WriteString(conn, text)
			_, _ = io.Copy(io.Discard, conn)
		}
	}
	for name, c := range map[string]struct {
		agent func(net.Conn)
		after time.Duration
		want  error
	}{
		"says nothing":        {agent: sends(""), after: setupTimeout, want: ErrUnresponsive},
		"speaks HTTP/1":       {agent: sends("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")},
		"sends garbage":       {agent: sends(strings.Repeat("garbage", 10000))},
		"sends unknown frame": {agent: sends("\x00\x00\x00\x42\x00\x00\x00\x00\x00"), want: errFrameType},
		"closes":              {agent: func(conn net.Conn) { _ = conn.Close() }},
		"answers an error":    {agent: answers(http.StatusInternalServerError, settings())},
		"larger frames":       {agent: answers(http.StatusNoContent, larger), want: errFrameSize},
		"fewer streams":       {agent: answers(http.StatusNoContent, fewer)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				manager, agent := link()
				done := make(chan struct{})
				go func() {
					defer close(done)
					c.agent(agent)
				}()
				began := time.Now()
				_, err := NewSession(t.Context(), manager)
				if err == nil {
					t.Fatal("the session was made")
				}
				if c.want != nil {
					want(t, err, c.want)
				}
				if got := time.Since(began); got != c.after {
					t.Errorf("failed after %s, want %s", got, c.after)
				}
				<-done // as its connection is closed
			})
		})
	}
}

// An agent that takes no data blocks the preface itself.
func TestSetupFailsWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager, agent := net.Pipe()
		defer func() { _ = agent.Close() }()
		began := time.Now()
		_, err := NewSession(t.Context(), manager)
		want(t, err, ErrUnresponsive)
		if got := time.Since(began); got != setupTimeout {
			t.Errorf("failed after %s, want %s", got, setupTimeout)
		}
	})
}

func TestCancelledSetup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager, agent := link()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		_, err := NewSession(ctx, manager)
		want(t, err, context.Canceled)
		if _, err := io.Copy(io.Discard, agent); err != nil {
			t.Error(err)
		}
	})
}

func TestServeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			manager string
			after   time.Duration
		}{
			"says nothing":     {after: setupTimeout},
			"speaks HTTP/1":    {manager: "GET / HTTP/1.1\r\nHost: agent\r\n\r\n"},
			"sends no request": {manager: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", after: 2 * time.Second},
		} {
			manager, agent := link()
			_, _ = io.WriteString(manager, c.manager)
			began := time.Now()
			want(t, Serve(t.Context(), agent, nil), ErrClosed)
			if got := time.Since(began); got != c.after {
				t.Errorf("%s: failed after %s, want %s", name, got, c.after)
			}
		}
	})
}

// With net/http's own windows three stalled streams block all others for good.
func TestThreat14_StalledStreamsBlockNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := make(chan net.Conn, maxStreams)
		r := start(t, func(context.Context, string) (net.Conn, error) {
			near, other := net.Pipe()
			far <- other
			return near, nil
		})
		defer r.stop()
		dial := func() (net.Conn, net.Conn) {
			conn, err := r.session.Dial(t.Context(), apiServer)
			want(t, err, nil)
			return conn, <-far
		}
		other, target := dial()
		chunk := make([]byte, 64<<10)
		flood := func(to net.Conn) {
			for {
				if _, err := to.Write(chunk); err != nil {
					return
				}
			}
		}
		var targets []net.Conn
		defer func() {
			for _, target := range targets {
				_ = target.Close()
			}
		}()
		for range 100 {
			conn, target := dial()
			targets = append(targets, target)
			go flood(conn)
			go flood(target)
		}
		synctest.Wait() // all writers are blocked
		sent, _ := r.manager.out.count()
		received, _ := r.manager.in.count()
		for direction, n := range map[string]int{"sent": sent, "received": received} {
			if n < 100*streamWindow || n > 110*streamWindow {
				t.Errorf("the manager %s %d bytes, want what fills 100 windows and buffers", direction, n)
			}
		}
		began := time.Now()
		for range 50 {
			go func() { _, _ = io.CopyN(target, target, 4) }()
			exchange(t, other, other, "ping")
		}
		_, _ = dial()
		if got := time.Since(began); got != 0 {
			t.Errorf("the others waited %s", got)
		}
		want(t, r.session.Err(), nil)
	})
}

func TestLargeTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		sent := make([]byte, 8<<20)
		_, _ = rand.Read(sent)
		conn, target := r.open()
		for _, c := range []struct{ from, to net.Conn }{{conn, target}, {target, conn}} {
			go func() { _, _ = c.from.Write(sent) }()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(c.to, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, sent) {
				t.Fatal("what arrived differs from what was sent")
			}
		}
	})
}
