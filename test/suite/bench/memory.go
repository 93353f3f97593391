package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

// Targets of a fleet at rest.
const (
	memoryRatio = 1.3
	memoryLimit = 1.5 * (1 << 30)
	restingCPU  = 0.05
)

// baseline is how long a process without connections is measured.
const baseline = 5 * time.Second

// soon is a timeout for conditions that should already be met.
const soon = time.Minute

// aloneShare is the share of Options.Rest (1/aloneShare) between the last connection and the measurement, for hosts and
// for bare connections. It is at least two minutes, after which the Go runtime always collects garbage.
const aloneShare = 5

// alikeShare is the share of Options.Rest (1/alikeShare) for measuring a bare server with the manager's garbage
// collection.
const alikeShare = 20

// managerGC is the default of the manager's flag --gc-percent.
const managerGC = "40"

// atOnce is the default number of concurrent connections or writes. More don't make an API server faster.
const atOnce = 32

// measureMemory measures a manager with connected, idle hosts.
func measureMemory(ctx context.Context, g *rig) error {
	manager := g.cluster.Managers()[0]
	p := measure.Process(manager.PID())
	empty, err := g.watchMemory(ctx, p, baseline)
	if err != nil {
		return err
	}
	if err := g.gather(ctx, g.options.Hosts); err != nil {
		return err
	}
	g.progress.Say("All hosts are connected. Leaving them alone for %s and watching them for %s.", g.options.Rest/aloneShare, g.options.Rest)
	if err := measure.Pause(ctx, g.options.Rest/aloneShare); err != nil {
		return err
	}
	if _, err := g.quiet(ctx); err != nil {
		return err
	}
	var full []uint64
	cpu, writes, err := g.atRest(ctx, p, func() error {
		return g.profiled(ctx, "rest", manager, func() (err error) {
			full, err = g.watchMemory(ctx, p, g.options.Rest)
			return err
		})
	})
	if err != nil {
		return err
	}
	// Each host is briefly disconnected between two polls.
	if n, err := g.awaitConnected(ctx, 0, soon); err != nil || n < g.options.Hosts {
		return errors.Join(err, fmt.Errorf("%d of %d hosts are connected at the end of their rest", n, g.options.Hosts))
	}
	if err := g.closeFleets(); err != nil {
		return err
	}
	manager.Kill()
	bareHost, err := g.bareMemory(ctx, g.options.Rest/aloneShare)
	if err != nil {
		return err
	}
	alikeHost, err := g.bareMemory(ctx, g.options.Rest/alikeShare, "GOGC="+managerGC)
	if err != nil {
		return err
	}
	host := float64(middle(full)-middle(empty)) / float64(g.options.Hosts)
	most := float64(slices.Max(full))
	g.row(table.Row{
		Figure: "Memory of the manager a host", Value: table.KiB(host), Bare: table.KiB(bareHost), Ratio: table.Ratio(host, bareHost),
		Target: fmt.Sprintf("%.1fx", memoryRatio), Missed: host > memoryRatio*bareHost,
	})
	g.row(table.Row{
		Figure: "The same, Bare with the manager's garbage collection", Value: table.KiB(host), Bare: table.KiB(alikeHost), Ratio: table.Ratio(host, alikeHost),
	})
	g.row(table.Row{
		Figure: "Memory of the manager, at most", Value: table.MiB(most), Target: "below " + table.MiB(memoryLimit), Missed: most >= memoryLimit,
	})
	g.row(table.Row{
		Figure: "CPU of the manager, of one core", Value: table.Percent(cpu), Target: "below " + table.Percent(restingCPU), Missed: cpu >= restingCPU,
	})
	n := writes.Only(measure.Write.Object).Total() + writes.Only(measure.Write.Event).Total()
	g.row(table.Row{Figure: "Writes to the API server", Value: table.Count(n), Target: "0", Missed: n > 0})
	g.note("%s hosts have enrolled and wait for a plan; %s later they are watched for %s. Memory is the RSS of the process (%s without hosts), "+
		"the median of one look a second; what the kernel keeps for sockets is not in it. Each host asks again within that time, and each is asked for a sign of life every %s. "+
		"Bare is a Go HTTP/2 server with the same TLS settings and as many requests that wait, watched for %s after as long a rest. "+
		"It collects garbage as Go does by default, once the memory in use has doubled (GOGC=100). The manager does so earlier, as its flag --gc-percent is %s by default; "+
		"that is a part of what makes the ratio, and so it is told as well with a bare server that does the same (GOGC=%s), watched for %s. Writes are the API server's own count, "+
		"without leases.%s", table.Count(g.options.Hosts), g.options.Rest/aloneShare, g.options.Rest, table.MiB(float64(middle(empty))), server.DefaultPingAfter, g.options.Rest/aloneShare,
		managerGC, managerGC, g.options.Rest/alikeShare, listed(writes))
	return nil
}

// listed returns the list of writes, if any, as text.
func listed(writes measure.Writes) string {
	if len(writes) == 0 {
		return ""
	}
	return " All: " + writes.String() + "."
}

// watchMemory reads the memory of a process once a second.
func (g *rig) watchMemory(ctx context.Context, p measure.Process, watched time.Duration) ([]uint64, error) {
	var looks []uint64
	for end := time.Now().Add(watched); ; {
		bytes, err := p.Memory()
		if err != nil {
			return nil, err
		}
		looks = append(looks, bytes)
		if left := time.Until(end); left <= 0 {
			return looks, nil
		}
		if err := measure.Pause(ctx, min(time.Second, time.Until(end))); err != nil {
			return nil, err
		}
	}
}

// middle returns the median.
func middle(looks []uint64) uint64 { return slices.Sorted(slices.Values(looks))[len(looks)/2] }

// atRest returns the share of a core that a process uses while do runs, and the writes meanwhile, without leases.
func (g *rig) atRest(ctx context.Context, p measure.Process, do func() error) (share float64, _ measure.Writes, err error) {
	writes, err := g.api.Writes(ctx)
	if err != nil {
		return 0, nil, err
	}
	cpu, err := p.CPU()
	if err != nil {
		return 0, nil, err
	}
	start := time.Now()
	if err := do(); err != nil {
		return 0, nil, err
	}
	after, err := p.CPU()
	if err != nil {
		return 0, nil, err
	}
	share = float64(after-cpu) / float64(time.Since(start))
	now, err := g.api.Writes(ctx)
	return share, now.Since(writes).Only(notLease), err
}

// bareMemory returns the memory of a bare server for each connection. env is its environment.
func (g *rig) bareMemory(ctx context.Context, watched time.Duration, env ...string) (_ float64, err error) {
	s, err := g.startBare(ctx, env...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	empty, err := g.watchMemory(ctx, s.measured(), baseline)
	if err != nil {
		return 0, err
	}
	g.progress.Say("Making %s bare connections", table.Count(g.options.Hosts))
	if err := s.connect(ctx, g.options.Hosts, atOnce, func(context.Context, int) error { return nil }); err != nil {
		return 0, err
	}
	if err := measure.Pause(ctx, g.options.Rest/aloneShare); err != nil {
		return 0, err
	}
	full, err := g.watchMemory(ctx, s.measured(), watched)
	if err != nil {
		return 0, err
	}
	return float64(middle(full)-middle(empty)) / float64(g.options.Hosts), s.check()
}
