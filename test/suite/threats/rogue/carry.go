package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ignoreDials never answers.
func ignoreDials(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// stallStreams accepts each dial, sends as much as the manager takes, and takes nothing.
func stallStreams(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	garbage := make([]byte, 64<<10)
	for r.Context().Err() == nil {
		if _, err := w.Write(garbage); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
	}
}

// carry opens the host's tunnel and answers dials in its own way for a time. It counts the dials, and the most that were
// open at once.
func (r *tunnels) carry(ctx context.Context, t *tally, dials http.HandlerFunc) error {
	text, err := r.upgrade(tunnelBoot)
	if err != nil {
		return err
	}
	var open, most, all atomic.Int64
	handler := func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodConnect {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		all.Add(1)
		now := open.Add(1)
		defer open.Add(-1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); {
			was = most.Load()
		}
		dials(w, q)
	}
	for end := time.Now().Add(carrying); time.Now().Before(end) && ctx.Err() == nil; {
		conn, got := r.host.persist(ctx, text)
		t.add(got)
		if conn == nil {
			if !pause(ctx, pace) {
				break
			}
			continue
		}
		// net/http sets deadlines of its own.
		timer := time.AfterFunc(time.Until(end), func() { _ = conn.Close() })
		serveTunnel(conn, handler)
		timer.Stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers["dials"], t.answers["at once"] = int(all.Load()), int(most.Load())
	return context.Cause(ctx)
}

// serveTunnel serves HTTP/2 on a connection until that ends.
func serveTunnel(conn net.Conn, handler http.HandlerFunc) {
	l := &oneConnection{conn: plain{conn}, closed: make(chan struct{})}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: patience,
		// The manager wants at least as many streams as it may dial, and small frames.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, MaxReadFrameSize: 16 << 10},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				_ = l.Close()
			}
		},
	}
	_ = server.Serve(l)
}

// plain hides from net/http that the connection has TLS: it speaks HTTP/2 without having agreed on it.
type plain struct{ net.Conn }

// oneConnection is a listener that accepts one connection, and is closed with it.
type oneConnection struct {
	conn     net.Conn
	accepted bool
	once     sync.Once
	closed   chan struct{}
}

func (l *oneConnection) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	<-l.closed
	return nil, io.EOF
}

func (l *oneConnection) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConnection) Addr() net.Addr { return l.conn.LocalAddr() }
