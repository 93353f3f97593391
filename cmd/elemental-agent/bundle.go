package main

import (
	"log/slog"
	"path/filepath"
	"runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staging"
)

// addBundles makes the agent stage and install bundles of Kubernetes.
func addBundles(o *assembly.Options, machine *linux.Platform, stateDir string, log *slog.Logger) {
	o.NewStager = func(currentClient func() *client.Client) agent.Stager {
		return staging.New(staging.Options{
			Folder: filepath.Join(stateDir, "bundles"), Manager: func() staging.Manager { return currentClient() },
			Mirror: download.NewMirror(nil), Disk: download.System{}, Architecture: runtime.GOARCH, Clock: retry.System{}, Log: log,
		})
	}
	o.Installer = &installation.Installer{
		Record: installation.Record{Files: o.Store.Documents()}, Root: "/", Disk: installation.OS{}, Commands: oscommand.System{},
		Host: machine, Clock: retry.System{}, Log: log,
	}
}
