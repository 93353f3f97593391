// Package nodes makes hosts of a benchmark control-plane hosts: each with bootstrap data is an API server, which knows
// /readyz alone.
package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
)

const (
	// ProbePeriod is how often nodes are to probe their API servers, instead of every 5 s: all nodes share this machine.
	ProbePeriod = time.Minute
	// apiServerPort is the port of API servers.
	apiServerPort = 6443
	// headerTimeout bounds how long the header of a request takes.
	headerTimeout = 10 * time.Second
)

// Domain returns the domain of the names of endpoints in a namespace.
func Domain(namespace string) string { return namespace + ".svc.cluster.local" }

// nodes makes each host with bootstrap data a control-plane host: software that is an API server, which knows /readyz alone.
// It is safe for concurrent use.
type nodes struct {
	authority []byte
	settings  *tls.Config
	server    *http.Server

	mu        sync.Mutex
	listeners map[string]net.Listener
}

// Serve runs hosts with API servers until ctx or standard input ends. The certificate of the API servers has the names of
// endpoints in the namespace.
func Serve(ctx context.Context, namespace string) (err error) {
	n, err := newNodes(namespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.server.Close()) }()
	return remote.Serve(ctx, os.Stdin, os.Stdout, slog.New(slog.DiscardHandler), n)
}

func newNodes(namespace string) (*nodes, error) {
	authority, err := pki.NewAuthority("nodes", time.Now())
	if err != nil {
		return nil, err
	}
	pair, err := authority.Server("kube-apiserver", "*."+Domain(namespace))
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	return &nodes{
		authority: authority.Certificate, listeners: map[string]net.Listener{},
		settings: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13},
		server: &http.Server{
			Handler: http.HandlerFunc(ready), ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0),
		},
	}, nil
}

func ready(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/readyz" {
		w.WriteHeader(http.StatusNotFound)
	}
}

// Check is fleet.Software's.
func (*nodes) Check([]byte, string) error { return nil }

// Bootstrap is fleet.Software's.
func (n *nodes) Bootstrap(ctx context.Context, m fleet.Machine, _ []byte, _ string, _ func(string)) error {
	manifest := fmt.Sprintf("spec: {containers: [{command: [kube-apiserver, --advertise-address=%s, --secure-port=%d]}]}\n", m.Address, apiServerPort)
	for name, content := range map[string][]byte{
		"etc/kubernetes/pki/ca.crt": n.authority, "etc/kubernetes/manifests/kube-apiserver.yaml": []byte(manifest),
	} {
		path := filepath.Join(m.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			return fmt.Errorf("setting up an API server: %w", err)
		}
	}
	return n.Boot(ctx, m)
}

// Boot is fleet.Software's.
func (n *nodes) Boot(_ context.Context, m fleet.Machine) error {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(m.Address, apiServerPort)))
	if err != nil {
		return fmt.Errorf("starting an API server: %w", err)
	}
	n.mu.Lock()
	n.listeners[m.Name] = listener
	n.mu.Unlock()
	go func() { _ = n.server.Serve(tls.NewListener(listener, n.settings)) }()
	return nil
}

// Halt is fleet.Software's.
func (n *nodes) Halt(m fleet.Machine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if listener := n.listeners[m.Name]; listener != nil {
		_ = listener.Close()
		delete(n.listeners, m.Name)
	}
}

// Network is fleet.Software's. No host is cut off.
func (*nodes) Network(fleet.Machine, bool) {}

// Refuse is fleet.Software's. No endpoint moves.
func (*nodes) Refuse(fleet.Machine, netip.AddrPort) {}

// Remove is fleet.Software's. The fleet removes the files.
func (n *nodes) Remove(m fleet.Machine) error {
	n.Halt(m)
	return nil
}
