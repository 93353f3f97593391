package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// boot is a host between two changes of its power.
type boot struct {
	host *Host
	// id is the boot's, which no other has.
	id string
	// ctx ends when the power goes.
	ctx context.Context
	cut context.CancelFunc
	// running are all goroutines of this boot.
	running sync.WaitGroup
	// software is held by the one call of Software that goes on.
	software sync.Mutex

	mu sync.Mutex
	// life is the agent's process; nil while there is none.
	life *life
	// job is the bootstrap that was begun in this boot.
	job *job
	// table is what nft was told.
	table string
	// networkChanged tells the agent that the network may be back.
	networkChanged func()
}

// life is one process of the agent.
type life struct {
	mount *mount
	ctx   context.Context
	stop  context.CancelFunc
	// over is closed when nothing of it runs any more.
	over chan struct{}
}

// kill ends the process at a stroke.
func (l *life) kill() {
	l.mount.kill()
	l.stop()
}

// serve boots, starts what is installed, and has the agent run until the power goes:
// it is what systemd does.
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

// startSoftware starts what is installed and was not stopped for good.
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

// live runs the agent once.
func (b *boot) live() {
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	l := &life{mount: &mount{disk: &b.host.disk}, ctx: ctx, stop: stop, over: make(chan struct{})}
	defer close(l.over)
	b.mu.Lock()
	b.life = l
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
	b.life = nil
	b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.host.network.end()
		b.host.connected(b, agent.Connection{State: agent.Disconnected, Since: time.Now()})
	}
}
