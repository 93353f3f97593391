package machine

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
)

// bundleFor returns the bundle that the host's bootstrap installs for the machine, or nil.
// Programs that came from a bundle are gone after a reset, even if the host has not reported
// that yet.
func bundleFor(ctx context.Context, c client.Reader, s *scope, host *infrav1.ElementalHost) (*infrav1.HostBundle, error) {
	if s.owner == nil || !canInstallBundles(host) || len(host.MissingPrograms()) == 0 && !hasProgramsOfBundle(host) {
		return nil, nil
	}
	found, err := release.Get(ctx, c, host.Namespace, s.owner.Spec.Version)
	if err != nil {
		return nil, err
	}
	return release.BundleFor(found, host), nil
}

func canInstallBundles(host *infrav1.ElementalHost) bool {
	return host.Supports(infrav1.OperationType(protocol.CapabilityBundle))
}

func hasProgramsOfBundle(host *infrav1.ElementalHost) bool {
	if host.Status.Inventory == nil || host.Status.Inventory.Kubernetes == nil {
		return false
	}
	k := host.Status.Inventory.Kubernetes
	return k.Kubelet.Origin == infrav1.OriginBundle || k.Kubeadm.Origin == infrav1.OriginBundle
}

// prepareHost gives the machine's host a bundle if the claim had none to give: the release may
// be newer. Once the bootstrap has begun it is too late. prepareHost also sets s.preparation.
func prepareHost(ctx context.Context, c client.Client, s *scope) error {
	if s.machine.Spec.ProviderID != "" {
		return nil
	}
	if bootstrapOperation(s) == nil && s.host.Spec.Bundle == nil {
		bundle, err := bundleFor(ctx, c, s, s.host)
		if err != nil {
			return err
		}
		if bundle != nil {
			before := s.host.DeepCopy()
			s.host.Spec.Bundle = bundle
			ctrl.LoggerFrom(ctx).Info("Preparing host", "ElementalHost", klog.KObj(s.host), "version", bundle.Version, "sha256", bundle.SHA256)
			if err := c.Patch(ctx, s.host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
				return fmt.Errorf("preparing host %s: %w", s.host.Name, err)
			}
		}
	}
	s.preparation = preparationOf(s)
	return nil
}

// preparationOf says what the host lacks for its bootstrap by kubeadm, and where that comes
// from; blank if it lacks nothing or has not reported what it has. Nothing waits for it:
// bootstrap data may install what is missing.
func preparationOf(s *scope) string {
	version, missing := s.owner.Spec.Version, strings.Join(s.host.MissingPrograms(), " and ")
	switch {
	case missing != "" && s.host.Spec.Bundle != nil:
		return missingWithBundle(s.host, missing)
	case version == "" || s.owner.Spec.Bootstrap.ConfigRef.Kind != "KubeadmConfig":
		return ""
	case missing != "" && !canInstallBundles(s.host):
		return fmt.Sprintf("The host has no %s, and its agent can't install a bundle: upgrade the agent", missing)
	case missing != "":
		return fmt.Sprintf("The host has no %s, and no ElementalKubernetesRelease %s has a bundle for its architecture %s",
			missing, release.Name(version), s.host.Status.Inventory.Architecture)
	case s.host.Status.Inventory == nil || s.host.Status.Inventory.Kubernetes == nil:
		return ""
	}
	if kubelet := s.host.Status.Inventory.Kubernetes.Kubelet.Version; kubelet != "" && kubelet != version {
		return fmt.Sprintf("The kubelet of the host is %s, and the version of the Machine is %s", kubelet, version)
	}
	return ""
}

func missingWithBundle(host *infrav1.ElementalHost, missing string) string {
	if staged := host.StagedBundle(); staged != nil && staged.State == infrav1.BundleFailed {
		return fmt.Sprintf("The host has no %s, and can't stage the bundle of Kubernetes %s: %s", missing, staged.Version, staged.Message)
	}
	return fmt.Sprintf("The host has no %s, and installs the bundle of Kubernetes %s first", missing, host.Spec.Bundle.Version)
}
