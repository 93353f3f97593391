package fleet

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/upgrade"
)

// upgrader upgrades the node on a host by its Software.
type upgrader struct {
	boot     *boot
	mount    *mount
	software Upgrader
}

// addUpgrades makes an agent stage bundles and upgrade Kubernetes, if the Software can.
func (b *boot) addUpgrades(o *assembly.Options, l *agentProcess, store *state.Store) {
	software, ok := b.host.fleet.settings.Software.(Upgrader)
	if !ok {
		return
	}
	u := &upgrader{boot: b, mount: l.mount, software: software}
	o.NewStager = func(manager func() *client.Client) agent.Stager {
		return &upgrade.Stager{Client: manager, Rate: b.host.fleet.settings.BundleRate}
	}
	o.NewNodeUpgrade = func(stager agent.Stager) operation.Runner {
		return &upgrade.Runner{Stager: stager, Plan: store.Plan, Check: u.check, During: u.during, Upgrade: u.upgrade}
	}
}

func (u *upgrader) check(ctx context.Context, to protocol.NodeUpgrade) error {
	return u.software.CheckUpgrade(ctx, u.boot.host.machine(), to)
}

func (u *upgrader) during(ctx context.Context, to protocol.NodeUpgrade) error {
	if during := u.boot.host.fleet.settings.DuringUpgrade; during != nil {
		return during(ctx, u.boot.host, to)
	}
	return nil
}

func (u *upgrader) upgrade(ctx context.Context, to protocol.NodeUpgrade, progress func(string)) error {
	u.boot.software.Lock()
	defer u.boot.software.Unlock()
	if err := u.software.Upgrade(ctx, u.boot.host.machine(), to, progress); err != nil {
		return err
	}
	if err := u.mount.change(func(d *disk) { d.kubernetes = to.Bundle.Version }); err != nil {
		return err
	}
	u.boot.host.count(func(d *Done) { d.Upgrades++ })
	return nil
}
