package api

import (
	"context"
	"net/http"
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// bundle sends the bundle of Kubernetes that the host's plan names, if the manager is one of
// its sources. For any other digest the answer is the same, whether the file exists or not.
func (h *Handler) bundle(w http.ResponseWriter, r *http.Request, from caller) error {
	return h.file(w, r, from, h.bundles, h.namesBundle)
}

// namesBundle reports whether the host's plan names the bundle with that digest, with the
// manager as a source.
func (h *Handler) namesBundle(ctx context.Context, host *infrav1.ElementalHost, digest string) (bool, error) {
	site, err := h.planInputs.Site(ctx, host)
	if err != nil {
		return false, err
	}
	cluster, err := h.planInputs.Cluster(ctx, host)
	if err != nil {
		return false, err
	}
	named := plan.BundleNamed(plan.For(host, site, cluster), digest)
	return named != nil && slices.Contains(named.Sources, protocol.SourceManager), nil
}
