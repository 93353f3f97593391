package release

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Name returns the name of the release of a version.
func Name(version string) string { return strings.ReplaceAll(version, "+", "-") }

// Get reads the release of a version. It returns nil if it does not exist.
func Get(ctx context.Context, c client.Reader, namespace, version string) (*infrav1.ElementalKubernetesRelease, error) {
	if version == "" {
		return nil, nil
	}
	r := &infrav1.ElementalKubernetesRelease{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: Name(version)}, r)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting ElementalKubernetesRelease %s: %w", Name(version), err)
	case r.Spec.Version != version:
		return nil, nil // v1+x and v1-x have the same name
	}
	return r, nil
}

// BundleFor returns the release's bundle for the host, or nil. A nil release has none, and
// neither has any release for a host that has not reported its architecture.
func BundleFor(r *infrav1.ElementalKubernetesRelease, host *infrav1.ElementalHost) *infrav1.HostBundle {
	if r == nil || host.Status.Inventory == nil {
		return nil
	}
	for i := range r.Spec.Bundles {
		b := &r.Spec.Bundles[i]
		if b.Architecture != host.Status.Inventory.Architecture {
			continue
		}
		sources := slices.Clone(b.Sources)
		if len(sources) == 0 {
			sources = []string{infrav1.SourceManager}
		}
		return &infrav1.HostBundle{Version: r.Spec.Version, SHA256: b.SHA256, SizeBytes: b.SizeBytes, Sources: sources}
	}
	return nil
}
