package api

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// agentBinary sends the agent binary that the host's plan names. For any other digest the
// answer is the same, whether the file exists or not.
func (h *Handler) agentBinary(w http.ResponseWriter, r *http.Request, from caller) error {
	return h.file(w, r, from, h.agents, h.pinsAgent)
}

// file sends one of the files if named reports that the host's plan names its digest.
func (h *Handler) file(w http.ResponseWriter, r *http.Request, from caller, files *downloads,
	named func(ctx context.Context, host *infrav1.ElementalHost, digest string) (bool, error),
) error {
	digest, err := parameter(r, "sha256")
	if err != nil {
		return err
	}
	if files.Files == nil || from.host.Spec.Fence != nil {
		return problem.NoOperation(http.StatusNotFound)
	}
	allowed, err := named(r.Context(), from.host, digest)
	if err != nil {
		return err
	}
	if !allowed {
		return problem.NoOperation(http.StatusNotFound)
	}
	by := receiver{host: client.ObjectKeyFromObject(from.host)}
	from.host = nil
	return files.send(w, r, by, digest)
}

// pinsAgent reports whether the host's plan names the agent binary with that digest.
func (h *Handler) pinsAgent(ctx context.Context, host *infrav1.ElementalHost, digest string) (bool, error) {
	site, err := h.planInputs.Site(ctx, host)
	if err != nil {
		return false, err
	}
	// Only plans of approved hosts name an agent. It does not depend on the cluster.
	agent := plan.For(host, site, plan.Cluster{}).Desired.Agent
	return agent != nil && agent.SHA256 == digest, nil
}
