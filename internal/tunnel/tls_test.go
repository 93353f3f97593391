package tunnel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// certificate returns one that both ends of a connection use.
func certificate(tb testing.TB) tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// loopback returns both ends of a TCP connection.
func loopback(tb testing.TB) (dialed, accepted net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dialed, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	accepted, err = l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	return dialed, accepted
}

// encrypted is a loopback connection with mutual TLS.
func encrypted(tb testing.TB) (manager, agent *tls.Conn) {
	tb.Helper()
	dialed, accepted := loopback(tb)
	own := certificate(tb)
	agent = tls.Client(dialed, &tls.Config{Certificates: []tls.Certificate{own}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	manager = tls.Server(accepted, &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13})
	return manager, agent
}

// overTLS starts a tunnel over TLS, with targets behind TCP. Its stop waits until
// nothing of the tunnel is left.
func overTLS(tb testing.TB) (session *Session, accepted chan net.Conn, stop func()) {
	tb.Helper()
	manager, agent := encrypted(tb)
	accepted = make(chan net.Conn, maxStreams)
	served := make(chan error, 1)
	go func() {
		served <- Serve(context.WithoutCancel(tb.Context()), agent, func(context.Context, string) (net.Conn, error) {
			near, far := loopback(tb)
			accepted <- far
			return near, nil
		})
	}()
	session, err := NewSession(tb.Context(), manager)
	if err != nil {
		tb.Fatal(err)
	}
	return session, accepted, func() {
		session.Close(nil)
		if err := <-served; !errors.Is(err, ErrClosed) {
			tb.Errorf("the agent ended with %v, want %v", err, ErrClosed)
		}
	}
}

// The connection of a dial is a net.Conn in all that the standard library's own test of
// connections checks, over TLS and TCP.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		session, accepted, stop := overTLS(t)
		conn, err := session.Dial(t.Context(), apiServer)
		if err != nil {
			return nil, nil, nil, err
		}
		target := <-accepted
		return conn, target, func() {
			_ = conn.Close()
			_ = target.Close()
			stop()
		}, nil
	})
}
