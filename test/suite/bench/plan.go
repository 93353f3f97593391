package bench

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	agentclient "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	probes     = 100
	planRounds = 10
	// planGap is the time between two changes.
	planGap = 20 * time.Millisecond
	// planPatience is the timeout of a change.
	planPatience = 30 * time.Second
	// Targets for the time until the agent has a change.
	planMedian = 20 * time.Millisecond
	planP99    = 250 * time.Millisecond
)

// measurePlan measures how fast waiting hosts get changed plans.
func measurePlan(ctx context.Context, g *rig) error {
	all, stop, err := gatherProbes(ctx, g)
	if err != nil {
		return err
	}
	defer stop()
	g.progress.Say("Changing plans")
	var samples []time.Duration
	if err := g.profiled(ctx, "plan", g.cluster.Managers()[0], func() error {
		for round := range planRounds {
			took, err := changePlans(ctx, g, all, fmt.Sprintf("change-%d", round))
			if err != nil {
				return err
			}
			samples = append(samples, took...)
		}
		return nil
	}); err != nil {
		return err
	}
	p50, p99 := measure.Quantile(samples, 0.5), measure.Quantile(samples, 0.99)
	g.row(table.Row{Figure: "Change to agent, median", Value: table.Duration(p50), Target: "below " + table.Duration(planMedian), Missed: p50 >= planMedian})
	g.row(table.Row{Figure: "Change to agent, 99th percentile", Value: table.Duration(p99), Target: "below " + table.Duration(planP99), Missed: p99 >= planP99})
	g.row(table.Row{Figure: "Change to agent, longest", Value: table.Duration(measure.Quantile(samples, 1))})
	g.note("%s hosts wait for a plan, and %d further ones that have the agent's real client and carry nothing out. One of these after the other is asked to reboot, %s changes in all. "+
		"The time begins before the change is sent to the API server and ends when the client has the plan.", table.Count(g.options.Hosts), len(all), table.Count(len(samples)))
	return nil
}

// gatherProbes starts the fleet and probes among it, and waits until nothing happens any more. The probes poll until stop
// is called.
func gatherProbes(ctx context.Context, g *rig) (all []*probe, stop func(), err error) {
	if err := g.gather(ctx, g.options.Hosts); err != nil {
		return nil, nil, err
	}
	all, stop, err = startProbes(ctx, g)
	if err != nil {
		return nil, nil, err
	}
	_, err = g.awaitConnected(ctx, len(all), stepTimeout)
	if err == nil {
		err = measure.Pause(ctx, aftermath)
	}
	if err == nil {
		_, err = g.quiet(ctx)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return all, stop, nil
}

// probe is a host that consists of the agent's connection only.
type probe struct {
	name   string
	client *agentclient.Client
	// seen gets the ID of each new operation and the time of its arrival.
	seen chan sighting
}

type sighting struct {
	id string
	at time.Time
}

// startProbes enrols probes that poll until stop is called.
func startProbes(ctx context.Context, g *rig) (all []*probe, stop func(), err error) {
	polling, stop := context.WithCancel(ctx)
	for range min(probes, g.options.Hosts) {
		p, err := g.newProbe(ctx)
		if err != nil {
			stop()
			return nil, nil, err
		}
		all = append(all, p)
		go p.poll(polling)
	}
	return all, stop, nil
}

// changePlans changes the plan of one probe after the other, and returns how long each change took.
func changePlans(ctx context.Context, g *rig, all []*probe, id string) ([]time.Duration, error) {
	var samples []time.Duration
	for _, p := range all {
		took, err := p.change(ctx, g.admin, id)
		if err != nil {
			return nil, err
		}
		samples = append(samples, took)
		if err := measure.Pause(ctx, planGap); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// newProbe enrols a probe.
func (g *rig) newProbe(ctx context.Context) (*probe, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, fmt.Errorf("making a probe: %w", err)
	}
	certificate, err := identity.ClientCertificate(key)
	if err != nil {
		return nil, fmt.Errorf("making a probe: %w", err)
	}
	c, err := agentclient.New(agentclient.Options{
		Servers: []string{g.cluster.AgentURL}, TrustBundle: g.cluster.CABundle, Certificate: certificate, UserAgent: "bench", Built: time.Now().Add(-time.Hour),
	})
	if err != nil {
		return nil, fmt.Errorf("making a probe: %w", err)
	}
	answer, err := c.Enrol(ctx, g.token, protocol.EnrolRequest{
		Hello:       protocol.Hello{Protocol: protocol.Version, AgentVersion: "v0.0.0", BootID: "boot", Capabilities: []protocol.Capability{protocol.CapabilityReboot}},
		Cleanliness: protocol.Cleanliness{Clean: true},
	})
	if err != nil {
		return nil, fmt.Errorf("enrolling a probe: %w", err)
	}
	return &probe{name: answer.Name, client: c, seen: make(chan sighting, 1)}, nil
}

// poll polls plans until ctx ends, and sends each operation once.
func (p *probe) poll(ctx context.Context) {
	defer p.client.Close()
	const again = 100 * time.Millisecond
	revision, last := "", ""
	for ctx.Err() == nil {
		plan, err := p.client.Plan(ctx, revision, "boot")
		now := time.Now()
		switch {
		case err != nil:
			_ = measure.Pause(ctx, again)
		case plan != nil:
			revision = plan.Revision
			if op := plan.Operation; op != nil && op.ID != last {
				last = op.ID
				select {
				case p.seen <- sighting{op.ID, now}:
				case <-ctx.Done():
				}
			}
		}
	}
}

// change requests a reboot of the host and returns the time until the agent has the operation.
func (p *probe) change(ctx context.Context, admin client.Client, id string) (time.Duration, error) {
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.name}}
	before := host.DeepCopy()
	host.Spec.Reboot = &infrav1.HostReboot{ID: id}
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	start := time.Now()
	if err := admin.Patch(ctx, host, client.MergeFrom(before)); err != nil {
		return 0, fmt.Errorf("changing a plan: %w", err)
	}
	for {
		select {
		case s := <-p.seen:
			if s.id == id {
				return s.at.Sub(start), nil
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for a changed plan: %w", context.Cause(ctx))
		}
	}
}
