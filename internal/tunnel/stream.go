package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// stream is the manager's connection to a target.
type stream struct {
	session *Session
	target  string
	pulse   pulse
	// in has what the target sends, out what it gets.
	in, out *pipe
	// sent is closed, by flushed, when the end of what the target gets was sent.
	sent    chan struct{}
	flushed func()
	// ended is closed when nothing of the stream is left.
	ended chan struct{}
	// answer is set by connect.
	answer io.Closer
	closed atomic.Bool
}

func newStream(s *Session, target string) *stream {
	c := &stream{session: s, target: target, in: newPipe(), out: newPipe(), sent: make(chan struct{}), ended: make(chan struct{})}
	c.flushed = sync.OnceFunc(func() { close(c.sent) })
	return c
}

// connect sends the request and waits for the agent's answer. It removes the stream if
// it fails.
func (c *stream) connect(ctx context.Context) error {
	dialing, stopDialing := context.WithTimeoutCause(ctx, dialTimeout, ErrFiltered)
	defer stopDialing()
	// The request's context lasts as long as the stream.
	lasting, cancel := context.WithCancel(httptrace.WithClientTrace(context.WithoutCancel(ctx), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { c.flushed() },
	}))
	stop := context.AfterFunc(dialing, cancel)
	request := (&http.Request{
		Method:        http.MethodConnect,
		URL:           &url.URL{Scheme: "http", Host: c.target},
		Host:          c.target,
		Header:        http.Header{"User-Agent": nil},
		Body:          (*upload)(c),
		ContentLength: -1,
	}).WithContext(lasting)
	c.session.suspicion.sent(&c.pulse)
	since := c.pulse.since.Load()
	answer, err := c.session.client.RoundTrip(request) //nolint:bodyclose // receive closes it, or finish
	c.pulse.heard()
	switch intime := stop(); {
	case err != nil && !intime:
		c.session.suspicion.unanswered(since)
		err = context.Cause(dialing)
	case err != nil:
		err = c.session.failure(err)
	case !intime:
		err = context.Cause(dialing)
	default:
		err = errorOf(answer.StatusCode)
	}
	if err != nil {
		cancel()
		if answer != nil {
			_ = answer.Body.Close()
		}
		c.session.remove(c)
		return err
	}
	c.answer = answer.Body
	go func() {
		defer cancel()
		c.receive(answer.Body)
	}()
	return nil
}

// receive hands over what the target sends, until the stream has ended.
func (c *stream) receive(body io.ReadCloser) {
	defer close(c.ended)
	defer c.session.remove(c)
	err := c.session.buffers.relay((*download)(c), body)
	if err == nil {
		c.in.end(io.EOF)
		c.out.end(ErrReset)
	} else {
		c.abort(c.session.failure(err))
	}
	_ = body.Close()
}

// abort ends both directions. It drops data that nobody has read: else a stream whose
// reader is slow would outlive its session.
func (c *stream) abort(err error) {
	c.in.end(err)
	c.out.end(err)
}

// upload is the body of a stream's request.
type upload stream

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.out.Read(b)
	if n > 0 {
		u.session.suspicion.sent(&u.pulse)
	}
	return n, err
}

// Close is called by net/http when the stream has ended.
func (u *upload) Close() error {
	u.out.end(ErrReset)
	return nil
}

// download takes what a stream's answer has. After Close of the stream it takes all,
// until what was written before Close is sent.
type download stream

func (d *download) Write(b []byte) (int, error) {
	d.pulse.heard()
	_, _ = d.in.Write(b)
	return len(b), nil
}

// Read returns io.EOF at the orderly end, ErrReset at another end of the stream, and
// ErrClosed after the end of the session.
func (c *stream) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	return n, c.explain(err)
}

// Write returns after HTTP/2 has taken all data, which waits for the target's reader.
func (c *stream) Write(b []byte) (int, error) {
	n, err := c.out.Write(b)
	return n, c.explain(err)
}

// explain returns what the stream's user is told.
func (c *stream) explain(err error) error {
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case c.closed.Load():
		return net.ErrClosed
	case errors.Is(err, io.EOF):
		return err
	}
	if ended := c.session.Err(); ended != nil {
		return ended
	}
	return err
}

// CloseWrite ends what the target gets. The target's answer can still be read.
func (c *stream) CloseWrite() error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	c.out.end(io.EOF)
	return nil
}

// Close ends the stream. What was written before is still sent.
func (c *stream) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	c.in.end(net.ErrClosed)
	c.out.end(io.EOF)
	go c.finish()
	return nil
}

// finish ends the request when all is sent.
func (c *stream) finish() {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-c.sent:
	case <-timer.C:
	case <-c.ended:
		return
	}
	_ = c.answer.Close()
}

// LocalAddr returns the address of the tunnel's connection at the manager.
func (c *stream) LocalAddr() net.Addr { return c.session.wire.LocalAddr() }

// RemoteAddr returns the name of the target.
func (c *stream) RemoteAddr() net.Addr { return address(c.target) }

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *stream) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline bounds the present and later calls of Read.
func (c *stream) SetReadDeadline(t time.Time) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	c.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline bounds the present and later calls of Write.
func (c *stream) SetWriteDeadline(t time.Time) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	c.out.setWriteDeadline(t)
	return nil
}

// address is a target's name.
type address string

func (address) Network() string  { return "tunnel" }
func (a address) String() string { return string(a) }
