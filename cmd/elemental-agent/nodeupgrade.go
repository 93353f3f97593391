package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// addNodeUpgrade makes the agent upgrade Kubernetes in place, to a bundle.
func addNodeUpgrade(o *assembly.Options, machine *linux.Platform, stateDir string, log *slog.Logger) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	documents, store, boot := o.Store.Documents(), o.Store, o.BootID
	o.NewNodeUpgrade = func(stager agent.Stager) operation.Runner {
		return &nodeupgrade.Runner{
			Documents: documents, Checkpoints: filepath.Join(stateDir, nodeupgrade.CheckpointsFolder), Root: "/", System: durable.OS{},
			Stager: stager, Inspector: machine, Installed: installation.Record{Files: documents},
			Kubeadm:  kubeadm.Program{ScriptCommand: []string{self, scriptCommand}, Clock: retry.System{}},
			Commands: oscommand.System{}, Cluster: cluster.Client{Root: "/"}, Free: download.System{}.Free, IsReadOnly: installation.OS{}.IsReadOnly,
			LocalAddresses: machine.LocalAddresses, BootID: boot, Plan: store.Plan, Clock: retry.System{}, Log: log,
		}
	}
	return nil
}
