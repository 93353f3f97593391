package main

import (
	"log/slog"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/elemental"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// addElemental makes the agent reset and upgrade Elemental OS by its own program. There are no
// bundles: Elemental OS has its programs in its image, and no room where the state is.
func addElemental(o *assembly.Options, system elemental.System, machine *linux.Platform, stateDir string, log *slog.Logger) {
	store, documents := o.Store, o.Store.Documents()
	upgrade := &elemental.UpgradeRunner{System: system, Documents: documents, Platform: machine, BootID: o.BootID, Log: log}
	o.Platform = elemental.Platform{Platform: machine, System: system}
	o.Reset = &elemental.ResetRunner{
		System: system, Documents: documents, Bootstraps: o.Executor, Platform: machine, Commands: oscommand.System{}, BootID: o.BootID, Log: log,
	}
	o.Upgrade = upgrade
	o.NewNodeUpgrade = func(agent.Stager) operation.Runner {
		return &nodeupgrade.Runner{
			Documents: documents, Checkpoints: filepath.Join(stateDir, nodeupgrade.CheckpointsFolder), Root: "/", System: durable.OS{},
			Inspector: machine, OS: upgrade, Commands: oscommand.System{}, Cluster: cluster.Client{Root: "/"},
			LocalAddresses: machine.LocalAddresses, BootID: o.BootID, Plan: store.Plan, Clock: retry.System{}, Log: log,
		}
	}
}
