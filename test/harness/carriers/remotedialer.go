package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"
)

// sessionTimeout bounds the time until the other project's tunnel is there.
const sessionTimeout = 30 * time.Second

// theirs is the tunnel of rancher/remotedialer: WebSocket over the same TLS.
type theirs struct {
	setup  *setup
	server *http.Server
	dialer remotedialer.Dialer
	cancel context.CancelFunc
	// running are the server and the client.
	running sync.WaitGroup
}

func newRemotedialer(ctx context.Context, s *setup) (carrier, error) {
	logrus.SetOutput(io.Discard)
	listener, err := s.manager.Listen(ctx)
	if err != nil {
		return nil, err
	}
	const name = "host"
	tunnels := remotedialer.New(func(*http.Request) (string, bool, error) { return name, true, nil }, remotedialer.DefaultErrorWriter)
	c := &theirs{setup: s, dialer: tunnels.Dialer(name), server: &http.Server{Handler: tunnels, ReadHeaderTimeout: sessionTimeout}}
	c.running.Go(func() { _ = c.server.Serve(tls.NewListener(listener, s.server)) })
	ctx, c.cancel = context.WithCancel(ctx)
	ended := make(chan error, 1)
	c.running.Go(func() {
		dialer := &websocket.Dialer{
			TLSClientConfig: s.client, HandshakeTimeout: sessionTimeout,
			NetDialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return s.host.Dial(ctx, address) },
		}
		ended <- remotedialer.ConnectToProxyWithDialer(ctx, "wss://"+listener.Addr().String(), nil,
			func(string, string) bool { return true }, dialer,
			func(ctx context.Context, _, address string) (net.Conn, error) { return s.host.Dial(ctx, address) }, nil)
	})
	for limit := time.After(sessionTimeout); !tunnels.HasSession(name); {
		select {
		case err := <-ended:
			c.close()
			return nil, fmt.Errorf("opening a tunnel of remotedialer: %w", err)
		case <-limit:
			c.close()
			return nil, errors.New("opening a tunnel of remotedialer: it does not come about")
		case <-time.After(time.Millisecond):
		}
	}
	return c, nil
}

func (c *theirs) dial(ctx context.Context) (net.Conn, error) {
	return c.dialer(ctx, "tcp", c.setup.target.address())
}

func (c *theirs) close() {
	c.cancel()
	_ = c.server.Close()
	c.running.Wait()
}
