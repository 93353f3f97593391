package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Session is the manager's side of a tunnel.
type Session struct {
	wire      *wire
	client    *http.ClientConn
	buffers   buffers
	suspicion suspicion
	done      chan struct{}

	mu      sync.Mutex
	streams map[*stream]struct{}
	// err is why the session has ended.
	err error
	// onEnd is called with err.
	onEnd []func(error)
}

// NewSession starts a session on a connection over which the agent serves. It returns
// after the agent has answered a first question. The context bounds the set-up, which
// takes at most ten seconds; a session lasts until it is closed or lost. The session
// owns the connection, which is closed if the set-up fails.
func NewSession(ctx context.Context, conn net.Conn) (*Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTimeout, ErrUnresponsive)
	defer cancel()
	s := &Session{
		wire:    &wire{Conn: conn, inspect: (&frames{}).inspect},
		done:    make(chan struct{}),
		streams: map[*stream]struct{}{},
	}
	s.suspicion.init(s)
	// Nothing else interrupts the write of the preface.
	stop := context.AfterFunc(ctx, func() { _ = s.wire.Close() })
	err := s.start(ctx)
	if !stop() || err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.end(err)
		return nil, fmt.Errorf("setting up the tunnel: %w", err)
	}
	s.client.SetStateHook(func(client *http.ClientConn) {
		if client.Err() != nil {
			s.end(s.wire.reason())
		}
	})
	return s, nil
}

// start makes the HTTP/2 connection and asks its first question.
func (s *Session) start(ctx context.Context) error {
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return s.wire, nil },
		Protocols:              protocols(),
		HTTP2:                  settings(),
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	client, err := transport.NewClientConn(ctx, "http", "agent:80")
	if err != nil {
		return fmt.Errorf("starting HTTP/2: %w", err)
	}
	s.client = client
	if err := s.ask(ctx); err != nil {
		if client.Err() != nil {
			err = s.wire.reason()
		}
		return fmt.Errorf("asking the agent: %w", err)
	}
	if client.Available() <= maxStreams {
		return errors.New("agent permits too few streams")
	}
	return nil
}

// ask sends a request that the agent answers at once.
func (s *Session) ask(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodOptions, "http://agent/", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := s.client.RoundTrip(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("agent answered %d", answer.StatusCode)
	}
	return nil
}

// Dial connects to a target through the agent. The context bounds the dial, not the
// connection. The connection has deadlines and CloseWrite. Close sends what was written
// before if the agent takes it within five seconds.
func (s *Session) Dial(ctx context.Context, target string) (net.Conn, error) {
	if !isTarget(target) {
		return nil, fmt.Errorf("dialing %q: %w", target, ErrForbidden)
	}
	c := newStream(s, target)
	if err := s.add(c); err != nil {
		return nil, fmt.Errorf("dialing %s: %w", target, err)
	}
	if err := c.connect(ctx); err != nil {
		return nil, fmt.Errorf("dialing %s: %w", target, err)
	}
	return c, nil
}

// Streams returns how many streams are open or being dialed.
func (s *Session) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns nil while the session lasts, and then an ErrClosed with the reason.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// OnEnd calls a function with Err when the session has ended, or now if it has, in a
// goroutine of its own. Unlike a goroutine that waits for Done, it costs no memory.
func (s *Session) OnEnd(call func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		go call(s.err)
		return
	}
	s.onEnd = append(s.onEnd, call)
}

// Close ends the session and all its streams, for a reason that they return. Only the
// first reason counts.
func (s *Session) Close(reason error) { s.end(reason) }

func (s *Session) end(reason error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = ErrClosed
	if reason != nil {
		s.err = fmt.Errorf("%w: %w", ErrClosed, reason)
	}
	close(s.done)
	for _, call := range s.onEnd {
		go call(s.err)
	}
	s.onEnd = nil
	for c := range s.streams {
		c.abort(s.err)
	}
	s.mu.Unlock()
	s.suspicion.stop()
	if s.client != nil {
		_ = s.client.Close() // ends the streams, and then the connection
	} else {
		_ = s.wire.Close()
	}
}

// failure returns what an error of HTTP/2 means: the end of the session or of a stream.
func (s *Session) failure(err error) error {
	if s.client.Err() != nil {
		s.end(s.wire.reason())
	}
	if ended := s.Err(); ended != nil {
		return ended
	}
	return fmt.Errorf("%w: %w", ErrReset, err)
}

func (s *Session) add(c *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if len(s.streams) >= maxStreams {
		return ErrTooManyStreams
	}
	s.streams[c] = struct{}{}
	return nil
}

func (s *Session) remove(c *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, c)
}

// each calls a function for each stream.
func (s *Session) each(visit func(*stream)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.streams {
		visit(c)
	}
}
