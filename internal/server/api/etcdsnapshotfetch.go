package api

import (
	"net/http"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// etcdSnapshotFetch permits the download of the snapshot that the restore in the host's plan
// begins with, and hands out its key. It may be asked again as long as the plan has the restore.
func (h *Handler) etcdSnapshotFetch(w http.ResponseWriter, r *http.Request, from caller) error {
	in, host, cluster, err := readGrantRequest[protocol.EtcdSnapshotFetchRequest](h, w, r, from)
	if err != nil {
		return err
	}
	site, err := h.planInputs.Site(r.Context(), host)
	if err != nil {
		return err
	}
	op := plan.For(host, site, cluster).Operation
	if op == nil || op.EtcdRestore == nil || !op.EtcdRestore.Uploaded || op.ID != in.ID {
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
