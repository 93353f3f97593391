package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// The first byte of a stream says what the target does with it.
const (
	// echo sends back what it gets.
	echo = 'e'
	// source sends as much as the stream takes.
	source = 's'
	// sink takes all that it gets.
	sink = 'k'
	// stalled sends as much as the stream takes, and takes nothing.
	stalled = 'x'
)

const chunk = 64 << 10

// target is what streams lead to, on the host.
type target struct {
	listener net.Listener
	// received counts the bytes of all sinks.
	received atomic.Int64
}

func serveTarget(listener net.Listener) *target {
	t := &target{listener: listener}
	go t.accept(listener)
	return t
}

func (t *target) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go t.serve(conn)
	}
}

func (t *target) address() string { return t.listener.Addr().String() }

// serve serves a stream until the other end closes it.
func (t *target) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	mode := make([]byte, 1)
	if _, err := io.ReadFull(conn, mode); err != nil {
		return
	}
	switch mode[0] {
	case echo:
		_, _ = io.Copy(conn, conn)
	case source, stalled:
		send(conn)
	case sink:
		receive(conn, &t.received)
	}
}

// send sends until the stream ends.
func send(to io.Writer) {
	buffer := make([]byte, chunk)
	for {
		if _, err := to.Write(buffer); err != nil {
			return
		}
	}
}

// receive counts what arrives until the stream ends.
func receive(from io.Reader, count *atomic.Int64) {
	buffer := make([]byte, chunk)
	for {
		n, err := from.Read(buffer)
		count.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// open opens a stream and says what the target is to do.
func open(ctx context.Context, c carrier, mode byte) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{mode}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
