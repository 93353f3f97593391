package serving

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"time"
)

// headerTimeout bounds how long a client may take to send the head of a request.
const headerTimeout = 30 * time.Second

// Server serves HTTPS, HTTP/2 included, at one address. Its methods may be called by several goroutines.
type Server struct {
	server   *http.Server
	listener *listener
	ended    chan struct{}
}

// Start starts to serve at an address that nothing else listens at. All may connect.
func Start(at netip.AddrPort, settings *tls.Config, handler http.Handler) (*Server, error) {
	l, err := listen(at)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", at, err)
	}
	s := &Server{listener: l, ended: make(chan struct{})}
	s.server = &http.Server{
		Handler: handler, TLSConfig: settings, ReadHeaderTimeout: headerTimeout,
		// Handshakes that fail are the business of whoever fails them.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(s.ended)
		// It ends by Close, and by nothing else: the certificate is in the settings.
		_ = s.server.ServeTLS(l, "", "")
	}()
	return s, nil
}

// Admit has connections from others than these refused from now on, and those that are open reset. Nil
// admits all.
func (s *Server) Admit(only func(netip.Addr) bool) { s.listener.admit(only) }

// Close stops serving at a stroke: when it returns nobody can connect, and no connection is open.
func (s *Server) Close() {
	_ = s.server.Close()
	// Connections that were upgraded are not the HTTP server's any more.
	s.listener.reset(nil)
	<-s.ended
}
