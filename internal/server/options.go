package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/api"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
)

// Defaults of Options.
const (
	DefaultDisconnectGrace = 120 * time.Second
	// DefaultPingAfter is for proxies: the kernels probe idle connections far sooner, but
	// only to the proxy, whose connection to the host may be dead.
	DefaultPingAfter   = 3 * time.Minute
	DefaultPingTimeout = 15 * time.Second
	DefaultEnrolRate   = 200
	DefaultEnrolBurst  = 1000
	// DefaultMaxEnrolments: more concurrent enrolments only wait for the API server.
	DefaultMaxEnrolments = 16
	// DefaultConnectionRate and DefaultConnectionBurst let 10,000 hosts behind one NAT
	// connect at the same time, each with a connection for its tunnel too.
	DefaultConnectionRate  = 1000
	DefaultConnectionBurst = 24000
	DefaultMaxHandshakes   = 1024
	// DefaultMaxUnauthenticated: three quarters of it, which one source may have, are more
	// than 10,000 hosts behind one NAT that enrol at the same time.
	DefaultMaxUnauthenticated = 16384
	DefaultHandshakeTimeout   = 10 * time.Second
	DefaultAgentDownloads     = 32
	// DefaultBundleDownloads: a bundle is some thirty times as large as an agent.
	DefaultBundleDownloads = 8
	DefaultDownloadStall   = 30 * time.Second
)

// Authority issues serving certificates and publishes the CA certificates that hosts trust.
type Authority interface {
	Leaf(ctx context.Context, names []string) (*tls.Certificate, error)
	Bundle(ctx context.Context) (string, error)
	// Subscribe calls f after each change of the CA certificates or the signing key, until
	// stop is called.
	Subscribe(f func()) (stop func())
}

// Options of a Server. Durations, rates and limits have defaults.
type Options struct {
	// Client reads from a cache that has the indexes of package index, and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Informers is the cache of Client.
	Informers Informers
	Authority Authority
	// Recorder records Events on ElementalHosts and ElementalRegistrations.
	Recorder events.EventRecorder
	Metrics  prometheus.Registerer
	Clock    clock.Clock

	// Address to listen on, host:port. It is ignored if Listener is set.
	Address  string
	Listener net.Listener
	// URL is the server URL of hosts whose registration has none; may be empty.
	URL string
	// Namespace of the manager and its Service.
	Namespace string
	// Pod is the manager's own; empty outside of a cluster.
	Pod types.NamespacedName

	// DisconnectGrace is how long a host without an open poll counts as connected.
	DisconnectGrace time.Duration
	// PingAfter is how long a connection may be silent before the server sends an HTTP/2
	// ping; PingTimeout is how long the answer may take.
	PingAfter, PingTimeout time.Duration
	// Agents opens agent binaries. Without it hosts are not updated, and none is offered for
	// installation.
	Agents api.Installer
	// Bundles opens bundles of Kubernetes. Without it the manager serves none.
	Bundles api.Files
	// AgentDownloads bounds concurrent downloads of agent binaries, BundleDownloads those of
	// bundles. DownloadStall is how long the transfer of 32 KiB may take.
	AgentDownloads  int
	BundleDownloads int
	DownloadStall   time.Duration
	// EnrolRate and EnrolBurst limit HTTP requests of one source that need no known key,
	// and those that fail because their key is not known or refused.
	EnrolRate  float64
	EnrolBurst int
	// MaxEnrolments bounds concurrent enrolments. Further ones wait, and have to retry
	// later if that takes long.
	MaxEnrolments int
	// ConnectionRate and ConnectionBurst limit new connections of one source, before the
	// TLS handshake.
	ConnectionRate  float64
	ConnectionBurst int
	// MaxHandshakes bounds concurrent TLS handshakes. Further connections wait or take the
	// place of silent ones of a source that has more; those of a source that has half of the
	// handshakes are closed. HandshakeTimeout bounds one handshake, and then the header of
	// each HTTP request.
	MaxHandshakes    int
	HandshakeTimeout time.Duration
	// MaxUnauthenticated bounds the connections that have used no key of a known host. One
	// source may have three quarters of them.
	MaxUnauthenticated int
	// Images says which images of kube-vip hosts may run.
	Images kubevip.ImagePolicy
	// SnapshotRelays are the storages of snapshots to which hosts may connect through the manager.
	SnapshotRelays snapshotrelay.Endpoints
	// Proxies are the networks of the proxies that begin their connections with a PROXY
	// protocol header.
	Proxies []netip.Prefix
}

// withDefaults returns the options with defaults for what is zero.
func (o Options) withDefaults() Options {
	o.DisconnectGrace = cmp.Or(o.DisconnectGrace, DefaultDisconnectGrace)
	o.PingAfter = cmp.Or(o.PingAfter, DefaultPingAfter)
	o.PingTimeout = cmp.Or(o.PingTimeout, DefaultPingTimeout)
	o.AgentDownloads = cmp.Or(o.AgentDownloads, DefaultAgentDownloads)
	o.BundleDownloads = cmp.Or(o.BundleDownloads, DefaultBundleDownloads)
	o.DownloadStall = cmp.Or(o.DownloadStall, DefaultDownloadStall)
	o.EnrolRate = cmp.Or(o.EnrolRate, DefaultEnrolRate)
	o.EnrolBurst = cmp.Or(o.EnrolBurst, DefaultEnrolBurst)
	o.MaxEnrolments = cmp.Or(o.MaxEnrolments, DefaultMaxEnrolments)
	o.ConnectionRate = cmp.Or(o.ConnectionRate, DefaultConnectionRate)
	o.ConnectionBurst = cmp.Or(o.ConnectionBurst, DefaultConnectionBurst)
	o.MaxHandshakes = cmp.Or(o.MaxHandshakes, DefaultMaxHandshakes)
	o.MaxUnauthenticated = cmp.Or(o.MaxUnauthenticated, DefaultMaxUnauthenticated)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, DefaultHandshakeTimeout)
	return o
}
