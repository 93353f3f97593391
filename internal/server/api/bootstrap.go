package api

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// bootstrap answers with the bootstrap data of the host's Machine.
func (h *Handler) bootstrap(w http.ResponseWriter, r *http.Request, from caller) error {
	if after, ok := h.sessions.AllowRequest(client.ObjectKeyFromObject(from.host)); !ok {
		return problem.TooManyRequests(after)
	}
	operation, err := parameter(r, "operation")
	if err != nil {
		return err
	}
	// The cached host may be older than its release or the end of the bootstrap.
	host, err := h.hosts.ReadLive(r.Context(), client.ObjectKeyFromObject(from.host))
	if err != nil {
		return err
	}
	if !hoststore.AcceptsKey(host, from.fingerprint) {
		return problem.UnknownHost()
	}
	if host.Spec.Fence != nil {
		return problem.Fenced()
	}
	// The host was paused after it got its plan. It drops the operation, because nothing was
	// done, and gets it again later. A bootstrap that has been reported goes on.
	if host.Operation(infrav1.OperationBootstrap, operation) == nil {
		if paused, err := h.planInputs.Paused(r.Context(), host); err != nil {
			return err
		} else if paused {
			return problem.NoOperation(http.StatusNotFound)
		}
	}
	data, format, err := h.bootstraps.Find(r.Context(), host, operation)
	if err != nil {
		return err
	}
	h.audit.Record(r.Context(), audit.BootstrapServed, host, "operation", operation, "clusterName", host.Spec.Claim.ClusterName,
		"machineName", host.Spec.Claim.MachineName)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(protocol.HeaderBootstrapFormat, format)
	w.WriteHeader(http.StatusOK)
	// An error here means that the caller has disconnected. It will retry.
	_, _ = w.Write(data) //nolint:gosec // an octet stream, which no browser renders
	return nil
}
