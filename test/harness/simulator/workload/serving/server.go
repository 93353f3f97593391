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

// Start starts a server at an unused address, which only the given addresses may connect to. Nil admits all.
// The settings may be those of several servers.
func Start(at netip.AddrPort, settings *tls.Config, only func(netip.Addr) bool, handler http.Handler) (*Server, error) {
	l, err := listen(at)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", at, err)
	}
	l.only = only
	s := &Server{listener: l, ended: make(chan struct{})}
	s.server = &http.Server{
		Handler: handler, TLSConfig: settings.Clone(), ReadHeaderTimeout: headerTimeout,
		// Failed handshakes are not logged.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(s.ended)
		// It ends by Close, and by nothing else: the certificate is in the settings.
		_ = s.server.ServeTLS(l, "", "")
	}()
	return s, nil
}

// Address returns where the server listens.
func (s *Server) Address() netip.AddrPort { return s.listener.at }

// Admit refuses connections from other addresses and resets open ones. Nil admits all.
func (s *Server) Admit(only func(netip.Addr) bool) { s.listener.admit(only) }

// Close stops the server immediately. When it returns, no connection is open or possible.
func (s *Server) Close() {
	_ = s.server.Close()
	// The HTTP server doesn't close upgraded connections.
	s.listener.reset(nil)
	<-s.ended
}
