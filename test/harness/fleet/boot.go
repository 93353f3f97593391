package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// boot is one boot of a host, from power-on to power-off.
type boot struct {
	host *Host
	// id is the unique boot ID.
	id string
	// ctx ends at power-off.
	ctx context.Context
	cut context.CancelFunc
	// running waits for all goroutines of this boot.
	running sync.WaitGroup
	// software serializes the calls of Software.
	software sync.Mutex

	mu sync.Mutex
	// process is the agent's process, or nil.
	process *agentProcess
	// job is the bootstrap that was started in this boot.
	job *job
	// table is the nftables table that the agent has set.
	table string
	// forwarder is nil while the host serves no endpoint itself.
	forwarder *runningForwarder
	// networkChanged notifies the agent that the network may be available again.
	networkChanged func()
}

// agentProcess is one process of the agent.
type agentProcess struct {
	mount *mount
	ctx   context.Context
	stop  context.CancelFunc
	// over is closed when all its goroutines have ended.
	over chan struct{}
}

// kill ends the process immediately, like SIGKILL.
func (l *agentProcess) kill() {
	l.mount.kill()
	l.stop()
}

// serve boots, starts the installed software, and runs the agent until power-off, as
// systemd does.
func (b *boot) serve() {
	clock := retry.System{}
	if clock.Wait(b.ctx, b.host.fleet.settings.BootTime) != nil {
		return
	}
	b.running.Go(b.startSoftware)
	for b.ctx.Err() == nil {
		b.live()
		_ = clock.Wait(b.ctx, b.host.fleet.settings.AgentRestart)
	}
}

// startSoftware starts the software if it is installed and not stopped permanently.
func (b *boot) startSoftware() {
	software := b.host.fleet.settings.Software
	b.host.disk.mu.Lock()
	starts := b.host.disk.installed && !b.host.disk.stopped
	b.host.disk.mu.Unlock()
	if software == nil || !starts {
		return
	}
	b.software.Lock()
	defer b.software.Unlock()
	if err := software.Boot(b.ctx, b.host.machine()); err != nil && b.ctx.Err() == nil {
		b.host.fleet.settings.Log.Error("Could not start what is installed", "virtualHost", b.host.Name, "error", err)
	}
}

// live runs the agent until it ends.
func (b *boot) live() {
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	l := &agentProcess{mount: &mount{disk: &b.host.disk}, ctx: ctx, stop: stop, over: make(chan struct{})}
	defer close(l.over)
	b.mu.Lock()
	b.process = l
	b.mu.Unlock()
	a, err := b.assemble(l)
	if err == nil {
		err = a.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		b.host.fleet.settings.Log.Error("The agent has ended, and is started again", "virtualHost", b.host.Name, "error", err)
	}
	l.kill()
	b.mu.Lock()
	b.process = nil
	b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.host.network.end()
		b.host.setConnection(b, connection.Status{State: connection.Disconnected, Since: time.Now()})
	}
}
