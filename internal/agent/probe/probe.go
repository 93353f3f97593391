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

// The time between the starts of two probes is between (1 - jitter) × period and
// period, so that the hosts of a cluster do not probe at the same time. Two
// failures are known within 2 × period + timeout after a server died.
const (
	period = 5 * time.Second
	jitter = 0.1
)

// State is the probe state of both servers.
type State struct {
	Endpoint, APIServer ServerState
	// CertificateNames are the sorted names in the certificate of the host's API
	// server. They stay known when it no longer answers.
	CertificateNames []string
}

// Options configure a Prober.
type Options struct {
	// Root replaces "/".
	Root string
	// LocalAddresses returns the host's addresses, the preferred one first.
	LocalAddresses func() []string
	Clock          retry.Clock
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
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	return &Prober{o: o}
}

// serverOutcome is the outcome of a probe of one of the two servers.
type serverOutcome struct {
	isAPIServer bool
	outcome     outcome
	names       []string
}

// Probe probes the endpoint and the host's API server until ctx ends, and calls
// changed with the state of both whenever it changes. The first state is the
// zero State, for which changed is not called.
func (p *Prober) Probe(ctx context.Context, host string, port int32, changed func(State)) {
	var endpoint, apiServer tracker
	var names []string
	portText := strconv.Itoa(int(port))
	for ctx.Err() == nil {
		began := p.o.Clock.Now()
		outcomes := make(chan serverOutcome)
		go func() { outcomes <- serverOutcome{outcome: p.probeEndpoint(ctx, host, portText)} }()
		go func() {
			outcome, names := p.probeAPIServer(ctx, portText)
			outcomes <- serverOutcome{isAPIServer: true, outcome: outcome, names: names}
		}()
		for range 2 {
			o := <-outcomes
			if ctx.Err() != nil {
				continue // the probe was cancelled, so its outcome means nothing
			}
			server := &endpoint
			if o.isAPIServer {
				server = &apiServer
			}
			isNew := server.record(o.outcome, began)
			if len(o.names) > 0 && !slices.Equal(o.names, names) {
				names, isNew = o.names, true
			}
			if isNew {
				changed(State{Endpoint: endpoint.state, APIServer: apiServer.state, CertificateNames: names})
			}
		}
		next := time.Duration((1 - jitter*p.o.Rand()) * float64(period))
		_ = p.o.Clock.Wait(ctx, next-p.o.Clock.Now().Sub(began))
	}
}
