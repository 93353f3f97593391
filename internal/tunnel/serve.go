package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Dialer connects the agent to a target. It returns ErrForbidden for a name that it
// does not know.
type Dialer func(ctx context.Context, target string) (net.Conn, error)

// Serve is the agent's side of a tunnel: it connects the manager's streams to targets
// until the connection ends or the context does. It returns why, when nothing of the
// tunnel is left. It owns the connection.
func Serve(ctx context.Context, conn net.Conn, dial Dialer) error {
	h := &handler{dial: dial}
	l := &listener{conn: &wire{Conn: conn}, closed: make(chan struct{})}
	server := &http.Server{
		Handler:                      h,
		Protocols:                    protocols(),
		HTTP2:                        settings(),
		ReadHeaderTimeout:            setupTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				_ = l.Close()
			}
		},
		// It would log what a manager sends against the protocol.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer stop()
	_ = server.Serve(l)
	h.finish()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrClosed, l.conn.reason())
}

// listener accepts one connection. It is closed with it.
type listener struct {
	conn     *wire
	accepted bool
	closed   chan struct{}
	once     sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.conn.LocalAddr() }

// handler serves the manager's requests.
type handler struct {
	dial    Dialer
	buffers buffers

	mu       sync.Mutex
	finished bool
	running  sync.WaitGroup
}

// begin returns false after finish: net/http starts a handler in a goroutine that may
// come later.
func (h *handler) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.finished {
		return false
	}
	h.running.Add(1)
	return true
}

// finish waits for all handlers.
func (h *handler) finish() {
	h.mu.Lock()
	h.finished = true
	h.mu.Unlock()
	h.running.Wait()
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.begin() {
		return
	}
	defer h.running.Done()
	w.Header()["Date"] = nil
	switch r.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case http.MethodConnect:
		h.connect(w, r)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// connect acknowledges a dial after the target has accepted, and then carries data.
func (h *handler) connect(w http.ResponseWriter, r *http.Request) {
	target, err := h.dialTarget(r.Context(), r.Host)
	if err != nil {
		w.WriteHeader(statusOf(err))
		return
	}
	flush := flusher{writer: w, controller: http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	err = flush.controller.Flush()
	if err == nil {
		err = h.carry(flush, r, target)
	}
	_ = target.Close()
	if err != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way to reset a stream
	}
}

func (h *handler) dialTarget(ctx context.Context, name string) (net.Conn, error) {
	if !isTarget(name) {
		return nil, ErrForbidden
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return h.dial(ctx, name)
}

// carry copies in both directions until the target or the manager ends the stream. The
// target's end ends both, as HTTP/2's server can't end one direction of a stream. The
// manager's orderly end of its data is passed on.
func (h *handler) carry(to io.Writer, r *http.Request, target net.Conn) error {
	gone := r.Context()
	stop := context.AfterFunc(gone, func() {
		_ = target.SetReadDeadline(time.Now())
		// What the manager had sent before goes to the target.
		_ = target.SetWriteDeadline(time.Now().Add(linger))
	})
	defer stop()
	uploaded := make(chan struct{})
	go func() {
		defer close(uploaded)
		h.upload(target, r.Body)
	}()
	err := h.buffers.relay(to, target)
	if gone.Err() == nil {
		_ = r.Body.Close()
		_ = target.Close()
	}
	<-uploaded
	return err
}

// upload sends to a target what the manager sends.
func (h *handler) upload(target net.Conn, body io.Reader) {
	err := h.buffers.relay(target, body)
	switch half, ok := target.(interface{ CloseWrite() error }); {
	case err == nil && ok:
		_ = half.CloseWrite()
	case errors.Is(err, errSink):
		// Reading from the target says how it has failed, and soon.
		_ = target.SetReadDeadline(time.Now().Add(linger))
	}
}

// flusher sends what it is given at once.
type flusher struct {
	writer     io.Writer
	controller *http.ResponseController
}

func (f flusher) Write(b []byte) (int, error) {
	n, err := f.writer.Write(b)
	return n, errors.Join(err, f.controller.Flush())
}
