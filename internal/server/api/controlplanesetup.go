package api

import (
	"context"
	"net/http"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// Setups find what hosts set up their control planes from again.
type Setups interface {
	// Setup returns it for a host whose plan has the restore that needs it.
	Setup(ctx context.Context, host *infrav1.ElementalHost) (protocol.ControlPlaneSetup, error)
}

// controlPlaneSetup serves what the restore in the host's plan sets up the control plane from. It
// may be asked for again as long as the plan has the restore: a power cut must not end it.
func (h *Handler) controlPlaneSetup(w http.ResponseWriter, r *http.Request, from caller) error {
	in, host, cluster, err := readGrantRequest[protocol.ControlPlaneSetupRequest](h, w, r, from)
	if err != nil {
		return err
	}
	restore, err := h.restore(r.Context(), host, cluster, in.ID)
	if err != nil {
		return err
	}
	if !restore.Rebuild {
		return problem.NoControlPlaneToSetUp()
	}
	setup, err := h.setups.Setup(r.Context(), host)
	if err != nil {
		return err
	}
	h.audit.Record(r.Context(), audit.ControlPlaneSetupServed, host, "restore", strings.Clone(host.Spec.EtcdRestore.RestoreName))
	return writeJSON(w, setup)
}
