package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// maxOverhead is how many bytes an object may have more than its snapshot, besides the 1/1024
// that encryption adds.
const maxOverhead = 64 << 10

// Destinations permit uploads and downloads of snapshots.
type Destinations interface {
	// Grant permits the upload of a snapshot of the cluster that the host has, with that size,
	// as a host is to make it.
	Grant(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster, id string, size int64) (protocol.EtcdSnapshotGrant, error)
	// GrantFetch permits the download of the snapshot of the restore that the host was asked
	// for, and returns the key of that object. infra may be nil.
	GrantFetch(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) (protocol.EtcdSnapshotFetchGrant, error)
	// RelayAddress returns the address of the storage to which the manager carries connections of
	// the host.
	RelayAddress(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) (string, error)
}

// etcdSnapshotUpload permits the upload of the snapshot that the host's plan wants uploaded.
// For any other snapshot the answer is the same, whether it exists or not.
func (h *Handler) etcdSnapshotUpload(w http.ResponseWriter, r *http.Request, from caller) error {
	in, host, cluster, err := readGrantRequest[protocol.EtcdSnapshotGrantRequest](h, w, r, from)
	if err != nil {
		return err
	}
	site, err := h.planInputs.Site(r.Context(), host)
	if err != nil {
		return err
	}
	wanted := plan.For(host, site, cluster).Desired.EtcdSnapshotUpload
	if wanted == nil || wanted.Folder != nil || wanted.ID != in.ID {
		return problem.New(http.StatusNotFound, problem.Blank, "The host is to upload no such snapshot")
	}
	if err := checkUploadSize(host.EtcdSnapshot(wanted.ID), in.SizeBytes); err != nil {
		return err
	}
	grant, err := h.uploads.Grant(r.Context(), host, cluster.Infra, wanted.ID, in.SizeBytes)
	if err != nil {
		return err
	}
	h.audit.Record(r.Context(), audit.SnapshotUploadGranted, host, "snapshot", strings.Clone(wanted.ID), "object", grant.Object, "bytes", in.SizeBytes)
	return writeJSON(w, grant)
}

// readGrantRequest reads a request for a permission, the host as it is now, and its cluster.
func readGrantRequest[T any](h *Handler, w http.ResponseWriter, r *http.Request, from caller) (in T, host *infrav1.ElementalHost, cluster plan.Cluster, err error) {
	if after, ok := h.sessions.AllowRequest(client.ObjectKeyFromObject(from.host)); !ok {
		return in, nil, cluster, problem.TooManyRequests(after)
	}
	if in, err = decode[T](w, r); err != nil {
		return in, nil, cluster, err
	}
	host, cluster, err = h.current(r.Context(), from)
	return in, host, cluster, err
}

// current returns the caller's host as it is now, and its cluster. The cached host may be older than its
// release.
func (h *Handler) current(ctx context.Context, from caller) (host *infrav1.ElementalHost, cluster plan.Cluster, err error) {
	if host, err = h.hosts.ReadLive(ctx, client.ObjectKeyFromObject(from.host)); err != nil {
		return nil, cluster, err
	}
	if !hoststore.AcceptsKey(host, from.fingerprint) {
		return nil, cluster, problem.UnknownHost()
	}
	cluster, err = h.planInputs.Cluster(ctx, host)
	return host, cluster, err
}

// checkUploadSize checks that an object has about the size of its snapshot, so that a host
// can't fill the bucket.
func checkUploadSize(snapshot *infrav1.HostEtcdSnapshot, size int64) error {
	switch {
	case size > protocol.MaxUploadBytes:
		p := problem.New(http.StatusRequestEntityTooLarge, problem.Blank, "The snapshot is too large")
		p.Detail = fmt.Sprintf("the destination takes no more than %d bytes in one request: compact and defragment etcd", int64(protocol.MaxUploadBytes))
		return p
	case size <= snapshot.SizeBytes || size > snapshot.SizeBytes+snapshot.SizeBytes/1024+maxOverhead:
		return problem.BadRequest("The size is not that of an encrypted snapshot as the host has reported it")
	default:
		return nil
	}
}
