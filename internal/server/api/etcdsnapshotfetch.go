package api

import (
	"context"
	"net/http"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// restore returns the restore in the host's plan; a blank one if the plan has none with this ID.
func (h *Handler) restore(ctx context.Context, host *infrav1.ElementalHost, cluster plan.Cluster, id string) (protocol.EtcdRestore, error) {
	site, err := h.planInputs.Site(ctx, host)
	if err != nil {
		return protocol.EtcdRestore{}, err
	}
	op := plan.For(host, site, cluster).Operation
	if op == nil || op.EtcdRestore == nil || op.ID != id {
		return protocol.EtcdRestore{}, nil
	}
	return *op.EtcdRestore, nil
}

// etcdSnapshotFetch permits the download of the snapshot that the restore in the host's plan
// begins with, and hands out its key. It may be asked again as long as the plan has the restore.
func (h *Handler) etcdSnapshotFetch(w http.ResponseWriter, r *http.Request, from caller) error {
	in, host, cluster, err := readGrantRequest[protocol.EtcdSnapshotFetchRequest](h, w, r, from)
	if err != nil {
		return err
	}
	restore, err := h.restore(r.Context(), host, cluster, in.ID)
	if err != nil {
		return err
	}
	if !restore.Uploaded {
		return problem.NoSnapshotToFetch()
	}
	grant, err := h.uploads.GrantFetch(r.Context(), host, cluster.Infra)
	if err != nil {
		return err
	}
	h.audit.Record(r.Context(), audit.SnapshotFetchGranted, host, "restore", strings.Clone(host.Spec.EtcdRestore.RestoreName),
		"object", grant.Object, "bytes", grant.SizeBytes)
	return writeJSON(w, grant)
}
