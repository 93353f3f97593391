package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/replay"
)

const (
	// enrolmentWrites is the target for the writes of an enrolment.
	enrolmentWrites = 3
	// bareRatio is the target for ratios to bare writes.
	bareRatio = 2.0
	// aftermath is longer than the manager's delay before it writes to a new host again.
	aftermath = 12 * time.Second
)

// measureEnrolment measures the enrolment of all hosts at once.
func measureEnrolment(ctx context.Context, g *rig) error {
	manager := g.cluster.Managers()[0]
	before, err := g.quiet(ctx)
	if err != nil {
		return err
	}
	p := measure.Process(manager.PID())
	cpu, err := p.CPU()
	if err != nil {
		return err
	}
	var took time.Duration
	if err := g.profiled(ctx, "enrol", manager, func() error {
		start := time.Now()
		if err := g.addHosts(ctx, g.options.Hosts, 0); err != nil {
			return err
		}
		err := g.mustConnect(ctx)
		took = time.Since(start)
		return err
	}); err != nil {
		return err
	}
	after, err := p.CPU()
	if err != nil {
		return err
	}
	if err := measure.Pause(ctx, aftermath); err != nil {
		return err
	}
	now, err := g.quiet(ctx)
	if err != nil {
		return err
	}
	cost := now.Since(before).Only(measure.Write.Accepted)
	template, err := replay.New(ctx, g.admin, namespace, bareNamespace)
	if err != nil {
		return err
	}
	if err := g.closeFleets(); err != nil {
		return err
	}
	manager.Kill()
	bareTook, err := g.bareEnrolment(ctx, template, cost)
	if err != nil {
		return err
	}
	hosts := float64(g.options.Hosts)
	writes := float64(cost.Only(measure.Write.Object).Total()) / hosts
	g.row(table.Row{
		Figure: fmt.Sprintf("%s enrolments", table.Count(g.options.Hosts)), Value: table.Duration(took), Bare: table.Duration(bareTook),
		Ratio: table.Ratio(took.Seconds(), bareTook.Seconds()), Target: fmt.Sprintf("%.1fx", bareRatio), Missed: took.Seconds() > bareRatio*bareTook.Seconds(),
	})
	g.row(table.Row{
		Figure: "Writes to the API server an enrolment", Value: table.Number(writes), Target: fmt.Sprintf("at most %d", enrolmentWrites), Missed: writes > enrolmentWrites,
	})
	g.row(table.Row{Figure: "CPU of the manager an enrolment", Value: table.Duration((after - cpu) / time.Duration(g.options.Hosts))})
	g.note("All hosts are switched on at once, and the time is over when all wait for a plan. Bare are as many handshakes and requests with a bare server, and the same writes "+
		"by a plain client, for %d hosts at a time. Writes are the API server's own count until %s after the last host, without Events and leases; uses of a token that come together "+
		"share one. All: %s.", atOnce, aftermath, cost.Only(notLease))
	return nil
}

// bareEnrolment does the handshakes and the writes of all enrolments.
func (g *rig) bareEnrolment(ctx context.Context, t *replay.Template, cost measure.Writes) (_ time.Duration, err error) {
	s, err := g.startBare(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	g.progress.Say("Enrolling %s bare hosts", table.Count(g.options.Hosts))
	replay := t.Replay(cost, g.options.Hosts)
	start := time.Now()
	if err := s.connect(ctx, g.options.Hosts, atOnce, replay); err != nil {
		return 0, err
	}
	return time.Since(start), s.check()
}
