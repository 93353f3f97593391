package local

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// errNoServer is the tunnel's answer on a host that has no way to an API server.
var errNoServer = errors.New("this host has neither an API server nor a forwarder to one")

// DialTarget is the tunnel.Dialer of the host. It knows one target: the host's own API
// server, or on a worker one of the cluster, through the forwarder.
func (e *Endpoint) DialTarget(ctx context.Context, target string) (net.Conn, error) {
	if target != protocol.TargetAPIServer {
		return nil, tunnel.ErrForbidden
	}
	server, found, err := apiserver.Find(e.o.Root)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return e.dialOther(ctx)
	}
	address, err := server.Address(e.o.LocalAddresses(), apiserver.DefaultPort)
	if err != nil {
		return nil, err
	}
	return e.o.Dial(ctx, "tcp", address)
}

// dialOther connects to an API server of another host, through the forwarder.
func (e *Endpoint) dialOther(ctx context.Context) (net.Conn, error) {
	recorded, err := e.document().Load()
	switch {
	case err != nil:
		return nil, fmt.Errorf("looking for the forwarder: %w", err)
	case recorded.Host == "":
		return nil, errNoServer
	}
	return e.o.Process.Dial(ctx, recorded)
}
