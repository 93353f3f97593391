package main

import (
	"log/slog"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/controlplane"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/certificaterenewal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// addCertificateRenewal makes the agent renew the certificates of a control plane.
func addCertificateRenewal(o *assembly.Options, stateDir string, log *slog.Logger) {
	o.CertificateRenewal = &certificaterenewal.Runner{
		Documents: o.Store.Documents(), Checkpoints: filepath.Join(stateDir, nodeupgrade.CheckpointsFolder), Root: "/", System: durable.OS{},
		Commands: oscommand.System{}, Free: download.System{}.Free, Plan: o.Store.Plan, Clock: retry.System{}, Log: log,
		ControlPlane: controlplane.Host{
			Root: "/", Commands: oscommand.System{}, Cluster: cluster.Client{Root: "/"}, Signal: controlplane.Kill, Clock: retry.System{},
		},
	}
}
