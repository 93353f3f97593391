package bare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	headerTimeout   = 10 * time.Second
	shutdownTimeout = time.Second
)

// Server is an HTTP/2 server with mutual TLS as in the agent API: TLS 1.3, self-signed client certificates, no session
// tickets. Otherwise it has the defaults of net/http. It responds to POST immediately and never to GET.
type Server struct {
	// Address is host:port; Certificate and Key are files, PEM.
	Address, Certificate, Key string
}

// Run serves until ctx ends.
func (s Server) Run(ctx context.Context) error {
	waiting, release := context.WithCancel(ctx)
	defer release()
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	server := &http.Server{
		Addr: s.Address, Protocols: protocols, ReadHeaderTimeout: headerTimeout,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				select {
				case <-r.Context().Done():
				case <-waiting.Done():
				}
			}
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServeTLS(s.Certificate, s.Key) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving bare connections: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving bare connections: %w", err)
	}
	return nil
}
