package agent

import (
	"context"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Prober looks at an endpoint and at the host's own API server until ctx ends,
// and calls seen with each change, at once, from one goroutine.
type Prober interface {
	Probe(ctx context.Context, host string, port int32, seen func(probe.Sight))
}

// target is an endpoint that is probed; the zero target is none.
type target struct {
	host string
	port int32
}

func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

// endpointFact is what is known of the cluster's endpoint.
type endpointFact struct {
	// kept is nil while the Keeper has not told yet.
	kept *protocol.EndpointReport
	// target is probed, sight is what was seen of it.
	target target
	sight  probe.Sight
}

// known is false while the manager is not to be told yet. A report without
// probes would take away what an earlier start of the agent had found out, and
// with it the reason to move an endpoint.
func (f endpointFact) known() bool {
	return f.kept != nil && (f.target == target{} || f.sight.Endpoint.Settled && f.sight.APIServer.Settled)
}

// report says it in the protocol's words.
func (f endpointFact) report(now time.Time) *protocol.EndpointReport {
	report := *f.kept
	if f.target == (target{}) {
		return &report
	}
	var problems []string
	if report.Message != "" {
		problems = append(problems, report.Message)
	}
	if v := f.sight.Endpoint; v.State == probe.Unknown {
		problems = append(problems, "the endpoint cannot be probed: "+v.Message)
	} else {
		report.Probe = &protocol.Probe{
			Endpoint: f.target.String(), Reachable: v.State == probe.Answers, ForSeconds: seconds(now.Sub(v.Since)),
			Message: clipTo(v.Message, protocol.MaxProbeMessageBytes),
		}
	}
	if v := f.sight.APIServer; v.State == probe.Unknown {
		problems = append(problems, "the host's own API server cannot be probed: "+v.Message)
	} else {
		report.APIServer = &protocol.APIServer{
			Ready: v.State == probe.Answers, ForSeconds: seconds(now.Sub(v.Since)), CertificateNames: f.sight.CertificateNames,
		}
	}
	report.Message = clip(strings.Join(problems, "; "))
	return &report
}

func seconds(d time.Duration) int32 {
	return int32(min(max(d/time.Second, 0), math.MaxInt32))
}

// retarget has the Prober look at what the plan says now.
func (a *Agent) retarget() {
	if a.Prober == nil || a.Keeper == nil {
		return
	}
	var next target
	if endpoint, _ := a.desired(); endpoint != nil && endpoint.Probe {
		next = target{endpoint.Host, endpoint.Port}
	}
	changed := false
	a.facts.update(func(o *observation) {
		if changed = o.endpoint.target != next; changed {
			o.endpoint.target, o.endpoint.sight = next, probe.Sight{}
		}
	})
	if changed {
		signal(a.retargeted)
		// Without probes everything may be known now.
		signal(a.report)
	}
}

// probe probes while the plan says so.
func (a *Agent) probe(ctx context.Context) error {
	for ctx.Err() == nil {
		at := a.facts.current().endpoint.target
		if at == (target{}) {
			select {
			case <-ctx.Done():
			case <-a.retargeted:
			}
			continue
		}
		a.Log.Info("Probing the control plane endpoint", "endpoint", at)
		a.until(ctx, a.retargeted, func(ctx context.Context) {
			a.Prober.Probe(ctx, at.host, at.port, func(sight probe.Sight) { a.saw(at, sight) })
		})
	}
	return nil
}

// saw has the manager told what was seen of a target that is still probed.
func (a *Agent) saw(at target, sight probe.Sight) {
	var before probe.Sight
	wanted := false
	a.facts.update(func(o *observation) {
		if wanted = o.endpoint.target == at; wanted {
			before, o.endpoint.sight = o.endpoint.sight, sight
		}
	})
	if !wanted {
		return
	}
	signal(a.report)
	for _, server := range []struct {
		name          string
		before, after probe.Verdict
	}{{"control plane endpoint", before.Endpoint, sight.Endpoint}, {"host's own API server", before.APIServer, sight.APIServer}} {
		switch {
		case server.before.State == server.after.State:
		case server.after.State == probe.Answers:
			a.Log.Info("The "+server.name+" answers", "endpoint", at)
		default:
			a.Log.Warn("The "+server.name+" does not answer", "endpoint", at, "error", server.after.Message)
		}
	}
}
