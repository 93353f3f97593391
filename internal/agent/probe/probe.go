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

// A probe begins at most period after the one before began, and at least period
// less jitter of it: the hosts of a cluster don't ask all at once, and two
// failures are known within 2 × period + timeout after a death.
const (
	period = 5 * time.Second
	jitter = 0.1
)

// Sight is what was seen so far.
type Sight struct {
	Endpoint, APIServer Verdict
	// CertificateNames are those of the API server's certificate, sorted; they
	// stay known while it doesn't answer.
	CertificateNames []string
}

// Options are what a Prober works with.
type Options struct {
	// Root stands for "/".
	Root string
	// Own are the host's addresses, the best first.
	Own   func() []string
	Clock retry.Clock
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
	// Dial connects; nil means the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Prober probes. Use New.
type Prober struct{ o Options }

// New makes a Prober, which does nothing by itself.
func New(o Options) *Prober {
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	return &Prober{o: o}
}

// result is how the probe of one of the two servers ended.
type result struct {
	own     bool
	outcome outcome
	names   []string
}

// Probe looks at the endpoint and at the host's own API server until ctx ends,
// and calls seen with all it knows whenever that changes, at once. Nothing is
// known at first.
func (p *Prober) Probe(ctx context.Context, host string, port int32, seen func(Sight)) {
	var endpoint, own track
	var names []string
	service := strconv.Itoa(int(port))
	for ctx.Err() == nil {
		began := p.o.Clock.Now()
		results := make(chan result)
		go func() { results <- result{outcome: p.probeEndpoint(ctx, host, service)} }()
		go func() {
			outcome, names := p.probeOwn(ctx, service)
			results <- result{own: true, outcome: outcome, names: names}
		}()
		for range 2 {
			r := <-results
			if ctx.Err() != nil {
				continue // it was ended, and says nothing
			}
			at := &endpoint
			if r.own {
				at = &own
			}
			changed := at.add(r.outcome, began)
			if len(r.names) > 0 && !slices.Equal(r.names, names) {
				names, changed = r.names, true
			}
			if changed {
				seen(Sight{Endpoint: endpoint.verdict, APIServer: own.verdict, CertificateNames: names})
			}
		}
		next := time.Duration((1 - jitter*p.o.Rand()) * float64(period))
		_ = p.o.Clock.Wait(ctx, next-p.o.Clock.Now().Sub(began))
	}
}
