package agent

import (
	"context"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Prober probes a control plane endpoint and the host's own API server until ctx ends.
// It calls changed with each new state, from one goroutine.
type Prober interface {
	Probe(ctx context.Context, target probe.Target, changed func(probe.State))
}

// defaultServerPort is the port of an API server whose endpoint has another one.
const defaultServerPort = 6443

// probeTarget is what to probe; the zero probeTarget means nothing.
type probeTarget probe.Target

func (t probeTarget) String() string { return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) }

// endpointFact is what the agent knows of the control plane endpoint.
type endpointFact struct {
	// applied is the Applier's last report, nil before the first.
	applied *protocol.EndpointReport
	// probes is the state of target.
	target probeTarget
	probes probe.State
	// questions counts the manager's questions. Each new one is answered with a report.
	questions int
}

// isReportable is false until the first probes have ended. A report without probes would
// delete those of an earlier start of the agent, and with them the reason to move the
// endpoint.
func (f endpointFact) isReportable() bool {
	return f.applied != nil && (f.target == probeTarget{} || f.probes.Endpoint.Conclusive && f.probes.APIServer.Conclusive)
}

// report converts the fact for the manager.
func (f endpointFact) report(now time.Time) *protocol.EndpointReport {
	report := *f.applied
	if f.target == (probeTarget{}) {
		return &report
	}
	var problems []string
	if report.Message != "" {
		problems = append(problems, report.Message)
	}
	if v := f.probes.Endpoint; v.Result == probe.Unknown {
		problems = append(problems, "the endpoint cannot be probed: "+v.Message)
	} else {
		report.Probe = &protocol.Probe{
			Endpoint: f.target.String(), Reachable: v.Result == probe.Answers, ForSeconds: seconds(now.Sub(v.Since)),
			Message: truncate(v.Message, protocol.MaxProbeMessageBytes),
		}
	}
	if v := f.probes.APIServer; v.Result == probe.Unknown {
		problems = append(problems, "the host's own API server cannot be probed: "+v.Message)
	} else {
		report.APIServer = &protocol.APIServer{
			Ready: v.Result == probe.Answers, ForSeconds: seconds(now.Sub(v.Since)), CertificateNames: f.probes.CertificateNames,
			Address: f.probes.Address,
		}
	}
	report.Message = truncate(strings.Join(problems, "; "), protocol.MaxMessageBytes)
	return &report
}

func seconds(d time.Duration) int32 {
	return int32(min(max(d/time.Second, 0), math.MaxInt32))
}

// endpointProbing probes the endpoint while the plan asks for probes.
type endpointProbing struct {
	prober   Prober
	endpoint *endpointUpkeep
	facts    *facts
	reporter *reporter
	log      *slog.Logger
	// targetChanged ends the probes of the former target. The lock of the facts makes it one step
	// with the change of the target.
	targetChanged signal.Signal

	// retargeting makes what is desired and the target that follows from it one step, so
	// that the later of two calls of retarget decides.
	retargeting sync.Mutex
}

// retarget probes what the plan desires now.
func (p *endpointProbing) retarget() {
	if p.prober == nil || p.endpoint.applier == nil {
		return
	}
	p.retargeting.Lock()
	defer p.retargeting.Unlock()
	var next probeTarget
	if endpoint, _ := p.endpoint.desired(); endpoint != nil && endpoint.Probe {
		next = probeTarget{Host: endpoint.Host, Port: endpoint.Port, ServerPort: endpoint.Port}
		if endpoint.Local != nil {
			next.ServerPort = defaultServerPort
		}
	}
	changed := false
	p.facts.update(func(o *observation) {
		if changed = o.endpoint.target != next; changed {
			o.endpoint.target, o.endpoint.probes = next, probe.State{}
			p.targetChanged.Raise()
		}
	})
	if changed {
		// Without a target the endpoint is reportable at once.
		p.reporter.wake.Raise()
	}
}

// run probes until ctx ends.
func (p *endpointProbing) run(ctx context.Context) error {
	for ctx.Err() == nil {
		target := p.takeTarget()
		if target == (probeTarget{}) {
			p.targetChanged.Wait(ctx)
			continue
		}
		p.log.Info("Probing the control plane endpoint", "endpoint", target)
		p.targetChanged.RunUntil(ctx, nil, func(ctx context.Context) {
			p.prober.Probe(ctx, probe.Target(target), func(probes probe.State) { p.record(target, probes) })
		})
	}
	return nil
}

// takeTarget returns what to probe, and clears the signal of its change: otherwise the signal
// would interrupt the first probes of this target.
func (p *endpointProbing) takeTarget() (target probeTarget) {
	p.facts.update(func(o *observation) {
		target = o.endpoint.target
		p.targetChanged.Clear()
	})
	return target
}

// record has the probes of a target reported, unless the target has changed.
func (p *endpointProbing) record(target probeTarget, probes probe.State) {
	var former probe.State
	isCurrent := false
	p.facts.update(func(o *observation) {
		if isCurrent = o.endpoint.target == target; isCurrent {
			former, o.endpoint.probes = o.endpoint.probes, probes
		}
	})
	if !isCurrent {
		return
	}
	p.reporter.wake.Raise()
	for _, server := range []struct {
		name        string
		former, now probe.ServerState
	}{{"control plane endpoint", former.Endpoint, probes.Endpoint}, {"host's own API server", former.APIServer, probes.APIServer}} {
		switch {
		case server.former.Result == server.now.Result:
		case server.now.Result == probe.Answers:
			p.log.Info("The "+server.name+" answers", "endpoint", target)
		default:
			p.log.Warn("The "+server.name+" does not answer", "endpoint", target, "error", server.now.Message)
		}
	}
}
