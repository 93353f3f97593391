package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// TLSConfig returns the TLS configuration of the agent API, with a certificate for each
// server name. A client certificate is not required, because a host that installs the agent has
// no key yet. The API refuses such a caller on all other routes.
func TLSConfig(certificates *Certificates) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{"h2", "http/1.1"},
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: certificates.Get,
		// Each connection has to prove its key.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			_, err := identity.PeerFingerprint(&state)
			return err
		},
	}
}

// handshake makes the TLS handshake of a connection. If it fails, or there are too many
// connections, handshake closes the connection and returns nil.
func (l *Listener) handshake(ctx context.Context, from *conn) net.Conn {
	secure := tls.Server(from, l.config)
	err := from.SetDeadline(time.Now().Add(l.timeout))
	if err == nil {
		err = from.pace(func() error { return secure.HandshakeContext(ctx) })
	}
	if err == nil {
		err = from.SetDeadline(time.Time{})
	}
	if err == nil {
		return l.establish(ctx, from, secure)
	}
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil && header.RecordHeader[0] >= 'A' && header.RecordHeader[0] <= 'Z' {
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThe agent API speaks HTTPS only.\n")
	}
	// Any caller can cause this, so it is not logged by default.
	l.logger.V(4).Info("TLS handshake failed", "source", from.RemoteAddr().String(), "reason", err.Error())
	_ = from.Close()
	return nil
}

// establish returns the connection unless it is closed at once. One without a key is never
// that of a known host. The handshake has refused keys of another kind.
func (l *Listener) establish(ctx context.Context, from *conn, secure *tls.Conn) net.Conn {
	state := secure.ConnectionState()
	fingerprint, err := identity.PeerFingerprint(&state)
	known := err == nil && l.known(ctx, fingerprint)
	if !l.connections.established(from, fingerprint, known) {
		_ = from.Close()
		return nil
	}
	return secure
}
