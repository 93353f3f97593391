package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/local"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// targetTimeout bounds the connection of the tunnel to an API server.
const targetTimeout = 3 * time.Second

// newMachine returns what works on this machine: the platform, and what serves the
// endpoint of the host's cluster.
func newMachine(documents state.Files, stateDir string, log *slog.Logger) (*linux.Platform, *endpoint.Applier, *local.Endpoint, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("finding this program: %w", err)
	}
	served := local.New(local.Options{
		Documents: documents, Process: &forwarder.Manager{Dir: stateDir, Command: []string{self, endpointCommand}},
		LocalAddresses: linux.New(linux.Options{}).LocalAddresses, Dial: tcp.SiteDialer(targetTimeout).DialContext,
		Clock: retry.System{}, Log: log,
	})
	applier := endpoint.New(endpoint.Options{Documents: documents, Local: served, Log: log})
	return linux.New(linux.Options{Endpoint: applier, Installation: installation.Record{Files: documents}}), applier, served, nil
}
