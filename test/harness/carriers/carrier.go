package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/carriers/place"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

// carrier connects the manager to the target on the host.
type carrier interface {
	dial(ctx context.Context) (net.Conn, error)
	close()
}

// setup is what carriers are made of.
type setup struct {
	manager, host  place.Place
	server, client *tls.Config
	// target is for carriers that end their TLS before it.
	target *target
}

// newSetup makes certificates for mutual TLS 1.3, and a target.
func newSetup(ctx context.Context, manager, host place.Place) (*setup, error) {
	trust, err := newTrust()
	if err != nil {
		return nil, err
	}
	server, client, err := trust.configs()
	if err != nil {
		return nil, err
	}
	listener, err := host.Listen(ctx)
	if err != nil {
		return nil, err
	}
	return &setup{manager: manager, host: host, server: server, client: client, target: serveTarget(listener)}, nil
}

func (s *setup) close() { _ = s.target.listener.Close() }

// trust is what both ends of a connection need for mutual TLS 1.3, in PEM. Both have the same certificate.
type trust struct{ Authority, Certificate, Key []byte }

func newTrust() (trust, error) {
	authority, err := pki.NewAuthority("carriers", time.Now())
	if err != nil {
		return trust{}, err
	}
	pair, err := authority.Peer("carriers")
	if err != nil {
		return trust{}, err
	}
	return trust{authority.Certificate, pair.Certificate, pair.Key}, nil
}

// configs returns the settings of servers and clients.
func (t trust) configs() (server, client *tls.Config, err error) {
	certificate, err := tls.X509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(t.Authority)
	server = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		SessionTicketsDisabled: true,
	}
	client = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, RootCAs: roots, ServerName: "localhost"}
	return server, client, nil
}

// direct is a TLS connection of its own for each stream, from the manager to the host, which a host behind NAT does not
// accept.
type direct struct {
	setup    *setup
	listener net.Listener
}

func newDirect(ctx context.Context, s *setup) (carrier, error) {
	listener, err := s.host.Listen(ctx)
	if err != nil {
		return nil, err
	}
	c := &direct{s, tls.NewListener(listener, s.server)}
	go s.target.accept(c.listener)
	return c, nil
}

func (c *direct) dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.setup.manager.Dial(ctx, c.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	return tls.Client(conn, c.setup.client), nil
}

func (c *direct) close() { _ = c.listener.Close() }

// ours is this project's tunnel.
type ours struct {
	session *tunnel.Session
	// served is closed when the host's end has ended, with the error ended.
	served chan struct{}
	ended  error
}

func newTunnel(ctx context.Context, s *setup) (carrier, error) {
	listener, err := s.manager.Listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }()
	c := &ours{served: make(chan struct{})}
	go func() {
		defer close(c.served)
		conn, err := s.host.Dial(ctx, listener.Addr().String())
		if err != nil {
			c.ended = err
			return
		}
		c.ended = tunnel.Serve(context.WithoutCancel(ctx), tls.Client(conn, s.client), func(ctx context.Context, _ string) (net.Conn, error) {
			return s.host.Dial(ctx, s.target.address())
		})
	}()
	conn, err := listener.Accept()
	if err != nil {
		return nil, fmt.Errorf("accepting a tunnel: %w", err)
	}
	if c.session, err = tunnel.NewSession(ctx, tls.Server(conn, s.server)); err != nil {
		<-c.served
		return nil, errors.Join(err, c.ended)
	}
	return c, nil
}

func (c *ours) dial(ctx context.Context) (net.Conn, error) {
	return c.session.Dial(ctx, "kube-apiserver")
}

func (c *ours) close() {
	c.session.Close(nil)
	<-c.served
}
