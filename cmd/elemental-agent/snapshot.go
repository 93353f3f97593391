package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/controlplane"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/etcdrestore/nodes"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/etcdrestore/setup"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/halt"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/standstill"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/fetch"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
)

// addSnapshots makes the agent take snapshots of etcd, upload them, and restore them, or stand
// still while another host does.
func addSnapshots(o *assembly.Options, files setup.Files, stateDir string, log *slog.Logger) {
	store := &snapshot.Store{
		Root: "/", Folder: filepath.Join(stateDir, snapshot.Folder), System: durable.OS{}, Space: snapshot.DiskSpace, Now: time.Now, Log: log,
	}
	o.Snapshotter = store
	o.NewUploader = func(currentClient func() *client.Client) *upload.Uploader {
		return &upload.Uploader{
			Source: store, Manager: func() upload.Manager { return client.Snapshots{Client: currentClient()} }, Log: log,
			Copier: &upload.Copier{
				System:       func(in *os.Root) durable.System { return durable.Within{Root: in} },
				IsMountPoint: upload.IsMountPoint,
			},
			Relay: func(ctx context.Context, snapshot string) (net.Conn, error) {
				return client.Snapshots{Client: currentClient()}.RelayUpload(ctx, snapshot)
			},
		}
	}
	checkpoints := filepath.Join(stateDir, nodeupgrade.CheckpointsFolder)
	host := controlplane.Host{
		Root: "/", Commands: oscommand.System{}, Cluster: cluster.Client{Root: "/"}, Signal: controlplane.Kill, Clock: retry.System{},
	}
	o.NewEtcdRestore = func(currentClient func() *client.Client) operation.Runner {
		return &etcdrestore.Runner{
			Documents: o.Store.Documents(), Checkpoints: checkpoints, Root: "/", System: durable.OS{},
			Snapshots: store, Fetcher: &fetch.Fetcher{
				Store: store, Manager: func() fetch.Manager { return client.Snapshots{Client: currentClient()} }, Log: log,
				Relay: func(ctx context.Context, operation string) (net.Conn, error) {
					return client.Snapshots{Client: currentClient()}.RelayFetch(ctx, operation)
				},
			},
			Commands: oscommand.System{}, Free: download.System{}.Free, Plan: o.Store.Plan, Clock: retry.System{}, Log: log, ControlPlane: host,
			Nodes: nodes.Remover{Root: "/", Clock: retry.System{}},
			Setup: setup.Setup{
				Root: "/", Manager: func() setup.Manager { return client.Restores{Client: currentClient()} }, Commands: oscommand.System{}, Hostname: os.Hostname,
				Files: files,
			},
		}
	}
	o.Halter = &halt.Runner{
		Standstill: standstill.Standstill{
			Checkpoints: checkpoint.Store{Root: "/", Folder: checkpoints, System: durable.OS{}}, ControlPlane: host,
		},
		Ready: host.Ready,
	}
}
