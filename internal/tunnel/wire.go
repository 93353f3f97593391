package tunnel

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wire is the connection below HTTP/2. It embeds the interface, so that net/http does
// not see the TLS of a *tls.Conn: it would insist on HTTP/2 by ALPN.
type wire struct {
	net.Conn
	// inspect judges what the peer sends, if it is set.
	inspect func([]byte) error
	// received counts bytes.
	received atomic.Int64

	mu sync.Mutex
	// cause is the first error.
	cause error
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.received.Add(int64(n))
	if w.inspect != nil {
		if refusal := w.inspect(p[:n]); refusal != nil {
			n, err = 0, refusal
		}
	}
	w.note(err)
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.note(err)
	return n, err
}

func (w *wire) note(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.cause = err
	}
}

// reason returns why the connection ended.
func (w *wire) reason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.cause == nil:
		return errors.New("peer does not speak HTTP/2 as agreed")
	case errors.Is(w.cause, io.EOF):
		return errors.New("peer closed the connection")
	default:
		return w.cause
	}
}

// Close does not wait for a peer that takes no more data: TLS sends a last record.
func (w *wire) Close() error {
	if encrypted, ok := w.Conn.(*tls.Conn); ok {
		timer := time.AfterFunc(closeTimeout, func() { _ = encrypted.NetConn().Close() })
		defer timer.Stop()
	}
	return w.Conn.Close()
}
