package fleet

import (
	"cmp"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/hardware"
)

// clock is the clock of a host.
type clock struct {
	retry.System

	skew time.Duration
}

func (c clock) Now() time.Time { return time.Now().Add(c.skew) }

// assemble puts an agent together from what is on the disk.
func (b *boot) assemble(l *agentProcess) (*agent.Agent, error) {
	h, s := b.host, &b.host.fleet.settings
	log := s.Log.With("virtualHost", h.Name)
	store, err := state.Open(l.mount)
	if err != nil {
		return nil, err
	}
	system := &system{boot: b, mount: l.mount}
	served := b.newLocalEndpoint(l, log)
	system.endpoint = endpoint.New(endpoint.Options{
		Documents: store.Documents(), Root: h.root(), Commands: system,
		Interfaces: func() ([]platform.NetworkInterface, error) { return hardware.Interfaces(h.Address), nil },
		Local:      served.Endpoint, Log: log,
	})
	options := assembly.Options{
		Store: store, Keys: hostkey.Keys{Policy: hostkey.Off, Log: log}, Servers: s.Servers, TrustBundle: s.TrustBundle, Source: "fleet",
		RotateAfter: config.DefaultRotateAfter,
		Platform:    system, Executor: &executor{boot: b, mount: l.mount}, Endpoint: system.endpoint,
		Local: served, Tunnel: served.DialTarget,
		Root: h.root(), ProbePeriod: s.ProbePeriod, Dial: h.network.dial, Clock: clock{skew: h.skew},
		Token: s.Token, ReadoptAfter: cmp.Or(s.ReadoptAfter, config.DefaultReadoptAfter),
		Status: func(status connection.Status) {
			if l.ctx.Err() == nil {
				h.setConnection(b, status)
			}
		},
		Version: s.Version, BootID: b.id, Log: log,
	}
	b.addUpgrades(&options, l, store)
	if s.Adjust != nil {
		s.Adjust(&options)
	}
	return assembly.New(options)
}
