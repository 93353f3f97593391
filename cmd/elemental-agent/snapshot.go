package main

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
)

// addSnapshots makes the agent take snapshots of etcd.
func addSnapshots(o *assembly.Options, stateDir string, log *slog.Logger) {
	o.Snapshotter = &snapshot.Store{
		Root: "/", Folder: filepath.Join(stateDir, snapshot.Folder), System: durable.OS{}, Space: snapshot.DiskSpace, Now: time.Now, Log: log,
	}
}
