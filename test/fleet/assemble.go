package fleet

import (
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/reboot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// version is what agents say they are.
const version = "virtual"

// clock is a host's.
type clock struct {
	retry.System

	skew time.Duration
}

func (c clock) Now() time.Time { return time.Now().Add(c.skew) }

// assemble puts an agent together from what is on the disk, as its program does.
func (b *boot) assemble(l *life) (*agent.Agent, error) {
	h, s := b.host, &b.host.fleet.settings
	log := s.Log.With("virtualHost", h.Name)
	clock := clock{skew: h.skew}
	store, err := state.Open(l.mount)
	if err != nil {
		return nil, err
	}
	link, err := agent.NewLink(agent.LinkOptions{
		Store: store, Keys: hostkey.Keys{Policy: hostkey.Off, Log: log}, Servers: s.Servers, TrustBundle: s.TrustBundle, Source: "fleet",
		Now: clock.Now, UserAgent: "elemental-agent/" + version, Dial: h.network.dial,
	})
	if err != nil {
		return nil, err
	}
	system := &system{boot: b, mount: l.mount}
	system.keeper = endpoint.New(endpoint.Options{
		Documents: store.Documents(), Root: h.root(), Commands: system,
		Interfaces: func() ([]host.Interface, error) { return interfaces(h.Address), nil }, Log: log,
	})
	execute := &executor{boot: b, mount: l.mount}
	linker := &node.Linker{Kubeconfigs: kubeconfigs(h.root()), Clock: clock, Dial: h.network.dial}
	return agent.New(agent.Options{
		Store: store, Link: link, Token: s.Token,
		Observer: system, Namer: system, Watcher: system, Linker: linker, Keeper: system.keeper,
		Prober: probe.New(probe.Options{
			Root: h.root(), Own: func() []string { return []string{h.Address.String()} }, Clock: clock, Dial: h.network.dial,
		}),
		Runners: map[protocol.OperationType]agent.Runner{
			protocol.OperationBootstrap: &agent.Bootstrap{
				Source: func() agent.Source { return link.Client() }, Documents: store.Documents(), Executor: execute,
				Observer: system, Surveyor: system, Namer: system, Linker: linker, Log: log,
				Keeper: system.keeper, Desired: func() protocol.Desired { return store.Plan().Desired },
			},
			protocol.OperationReset:  &agent.Reset{Store: store, Host: system, Undoer: execute, Observer: system, BootID: b.id, Log: log},
			protocol.OperationReboot: &reboot.Runner{Documents: store.Documents(), Host: system, BootID: b.id, Log: log},
		},
		RotateAfter: config.DefaultRotateAfter, ReadoptAfter: config.DefaultReadoptAfter,
		Status: func(c agent.Connection) {
			if l.ctx.Err() == nil {
				h.connected(b, c)
			}
		},
		Clock: clock, Log: log, Version: version, BootID: b.id,
	}), nil
}

// kubeconfigs are those of kubelets below a root.
func kubeconfigs(root string) []string {
	paths := node.Kubeconfigs()
	for i, path := range paths {
		paths[i] = filepath.Join(root, path)
	}
	return paths
}
