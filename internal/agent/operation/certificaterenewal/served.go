package certificaterenewal

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/certificates"
)

const (
	// serverName is a name that kubeadm puts into the certificate of each API server.
	serverName  = "kubernetes"
	dialTimeout = 10 * time.Second
)

// checkServed returns an error unless the API server of this host serves the certificate that its
// file has.
func (s *renewal) checkServed(ctx context.Context) (err error) {
	want, err := certificates.Load(s.Root, "pki/apiserver.crt")
	if err != nil {
		return err
	}
	authority, err := certificates.Load(s.Root, "pki/ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	server, found, err := apiserver.Find(s.Root)
	if err != nil {
		return err
	}
	if !found {
		return errors.New("there is no manifest of an API server")
	}
	address, err := server.Address(nil, apiserver.DefaultPort)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dial := s.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	raw, err := dial(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting to the API server of this host: %w", err)
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("looking at the certificate of the API server of this host: %w", err)
	}
	if is := conn.ConnectionState().PeerCertificates[0]; !is.Equal(want) {
		return fmt.Errorf("the API server of this host serves a certificate that ends at %s, and its file has one that ends at %s",
			is.NotAfter.UTC().Format(timeFormat), want.NotAfter.UTC().Format(timeFormat))
	}
	return nil
}
