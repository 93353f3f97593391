package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/carriers/place"
)

// holdCommand is the first argument of a process that holds connections, so that their memory can be measured.
const holdCommand = "hold"

// What a holder holds.
const (
	heldTLS     = "tls"
	heldTunnels = "tunnels"
)

// greeting is the first line of a holder. After it come as many more lines as it holds connections.
type greeting struct {
	Address string
	Trust   trust
}

// hold is the manager's side of idle connections: of tunnels, each with some streams that stall, or of TLS alone. It
// returns when in ends.
func hold(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("holding connections takes what to hold and a number of streams")
	}
	streams, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("reading the number of streams: %w", err)
	}
	trust, err := newTrust()
	if err != nil {
		return err
	}
	server, _, err := trust.configs()
	if err != nil {
		return err
	}
	listener, err := place.Loopback{}.Listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	lines := json.NewEncoder(out)
	if err := lines.Encode(greeting{listener.Addr().String(), trust}); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	var mu sync.Mutex
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if holdOne(ctx, tls.Server(conn, server), args[0], streams) == nil {
					mu.Lock()
					defer mu.Unlock()
					_ = lines.Encode("held")
				}
			}()
		}
	}()
	_, err = io.Copy(io.Discard, in)
	return err
}

func holdOne(ctx context.Context, conn *tls.Conn, what string, streams int) error {
	if what == heldTLS {
		if err := conn.HandshakeContext(ctx); err != nil {
			return err
		}
		go func() { _, _ = conn.Read(make([]byte, 1)) }()
		return nil
	}
	session, err := tunnel.NewSession(ctx, conn)
	if err != nil {
		return err
	}
	for range streams {
		stream, err := session.Dial(ctx, "kube-apiserver")
		if err != nil {
			return err
		}
		go send(stream)
	}
	return nil
}

// connectTo makes the host's side of a connection to a holder. Streams of a tunnel lead to targets that stall.
func connectTo(ctx context.Context, to greeting, client *tls.Config, what string) (hangUp func(), err error) {
	inner, err := place.Loopback{}.Dial(ctx, to.Address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(inner, client)
	if what == heldTLS {
		return func() { _ = inner.Close() }, conn.HandshakeContext(ctx)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tunnel.Serve(context.WithoutCancel(ctx), conn, func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go send(far)
			return near, nil
		})
	}()
	return func() {
		_ = inner.Close()
		<-ended
	}, nil
}
