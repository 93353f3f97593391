package probe

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// The time between the starts of two probes is between (1 - jitter) × Options.Period and
// Options.Period, so that the hosts of a cluster do not probe at the same time. Two
// failures are known within 2 × Options.Period + timeout after a server died.
const (
	defaultPeriod = 5 * time.Second
	jitter        = 0.1
)

// State is the probe state of both servers.
type State struct {
	Endpoint, APIServer ServerState
	// CertificateNames are the sorted names in the certificate of the host's API
	// server. They stay known when it no longer answers.
	CertificateNames []string
	// Address is where others reach the host's API server, IP:port; blank if unknown.
	Address string
}

// Target is what a Prober probes.
type Target struct {
	// Host and Port are the endpoint's.
	Host string
	Port int32
	// ServerPort is the port of the host's API server if the host does not know it.
	ServerPort int32
}

// Options configure a Prober.
type Options struct {
	// Root replaces "/".
	Root string
	// LocalAddresses returns the host's addresses, the preferred one first.
	LocalAddresses func() []string
	// Period is the longest time between two probes; 0 means 5 s.
	Period time.Duration
	Clock  retry.Clock
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
	// Dial opens connections; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Prober probes an endpoint and the host's API server. Use New.
type Prober struct{ o Options }

// New returns a Prober.
func New(o Options) *Prober {
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Period == 0 {
		o.Period = defaultPeriod
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	return &Prober{o: o}
}

// serverOutcome is the outcome of a probe of one of the two servers.
type serverOutcome struct {
	isAPIServer bool
	outcome     outcome
	server      server
}

// update takes what a later probe found out, and reports whether that is new.
func (s *server) update(later server) (changed bool) {
	if len(later.names) > 0 && !slices.Equal(later.names, s.names) {
		s.names, changed = later.names, true
	}
	if later.address != "" && later.address != s.address {
		s.address, changed = later.address, true
	}
	return changed
}

// Probe probes the endpoint and the host's API server until ctx ends, and calls
// changed with the state of both whenever it changes. The first state is the
// zero State, for which changed is not called.
func (p *Prober) Probe(ctx context.Context, target Target, changed func(State)) {
	var endpoint, apiServer tracker
	var found server
	port, serverPort := strconv.Itoa(int(target.Port)), strconv.Itoa(int(target.ServerPort))
	for ctx.Err() == nil {
		began := p.o.Clock.Now()
		outcomes := make(chan serverOutcome)
		go func() { outcomes <- serverOutcome{outcome: p.probeEndpoint(ctx, target.Host, port)} }()
		go func() {
			outcome, server := p.probeAPIServer(ctx, serverPort)
			outcomes <- serverOutcome{isAPIServer: true, outcome: outcome, server: server}
		}()
		for range 2 {
			o := <-outcomes
			if ctx.Err() != nil {
				continue // the probe was cancelled, so its outcome means nothing
			}
			tracked := &endpoint
			if o.isAPIServer {
				tracked = &apiServer
			}
			isNew := tracked.record(o.outcome, began)
			if found.update(o.server) || isNew {
				changed(State{
					Endpoint: endpoint.state, APIServer: apiServer.state, CertificateNames: found.names, Address: found.address,
				})
			}
		}
		next := time.Duration((1 - jitter*p.o.Rand()) * float64(p.o.Period))
		_ = p.o.Clock.Wait(ctx, next-p.o.Clock.Now().Sub(began))
	}
}
