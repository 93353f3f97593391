package machine

import (
	"context"
	"fmt"
	"slices"
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
func bundleFor(s *scope, host *infrav1.ElementalHost) *infrav1.HostBundle {
	if s.owner == nil || host.IsAdoptable() || !canInstallBundles(host) || !replacesPrograms(s) && len(host.MissingPrograms()) == 0 && !hasProgramsOfBundle(host) {
		return nil
	}
	bundle := release.BundleFor(s.release, host)
	if bundle != nil && replacesPrograms(s) {
		bundle.Programs = infrav1.ProgramsReplace
	}
	return bundle
}

func replacesPrograms(s *scope) bool { return s.machine.Spec.Programs == infrav1.ProgramsReplace }

func canInstallBundles(host *infrav1.ElementalHost) bool {
	return host.Supports(infrav1.OperationType(protocol.CapabilityBundle))
}

func hasProgramsOfBundle(host *infrav1.ElementalHost) bool {
	if host.Status.Inventory == nil || host.Status.Inventory.Kubernetes == nil {
		return false
	}
	k := host.Status.Inventory.Kubernetes
	return slices.Contains([]infrav1.ProgramOrigin{k.Kubelet.Origin, k.Kubeadm.Origin, k.ContainerRuntime.Origin}, infrav1.OriginBundle)
}

// prepareHost gives the machine's host a bundle if the claim had none to give: the release may
// be newer. Once the bootstrap has begun it is too late. prepareHost also sets s.preparation.
func prepareHost(ctx context.Context, c client.Client, s *scope) error {
	if s.machine.Spec.ProviderID != "" || s.host.Spec.Claim.Adoption != nil {
		return nil
	}
	if bootstrapOperation(s) == nil && s.host.Spec.Bundle == nil {
		if bundle := bundleFor(s, s.host); bundle != nil {
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

// preparationOf says what the host lacks for its bootstrap by kubeadm, where that comes from,
// and which of its own programs have another version than the machine; blank if there is nothing
// to say. Nothing waits for it: bootstrap data may install what is missing.
func preparationOf(s *scope) string {
	lack := ""
	if missing := s.host.MissingPrograms(); len(missing) > 0 {
		lack = "The host has no " + strings.Join(missing, ", no ")
	}
	switch {
	case s.host.Spec.Bundle != nil:
		return withBundle(s, lack)
	case !isOfKubeadm(s):
		return ""
	case lack == "" && replacesPrograms(s):
		lack = "The programs of the host are to be replaced"
	}
	switch {
	case lack == "":
		return otherVersions(s)
	case !canInstallBundles(s.host):
		return lack + ", and its agent can't install a bundle: upgrade the agent"
	case s.host.Status.Inventory == nil:
		return ""
	}
	return fmt.Sprintf("%s, and no ElementalKubernetesRelease %s has a bundle for its architecture %s",
		lack, release.Name(s.owner.Spec.Version), s.host.Status.Inventory.Architecture)
}

func isOfKubeadm(s *scope) bool {
	return s.owner.Spec.Version != "" && s.owner.Spec.Bootstrap.ConfigRef.Kind == "KubeadmConfig"
}

// withBundle is preparationOf for a host with a bundle.
func withBundle(s *scope, lack string) string {
	version, kept := s.host.Spec.Bundle.Version, ""
	switch {
	case s.host.ReplacesPrograms():
		lack = "The programs of the host are to be replaced"
	case lack == "":
		return otherVersions(s)
	default:
		kept = otherVersions(s)
	}
	if kept != "" {
		kept = ". " + kept
	}
	if staged := s.host.StagedBundle(); staged != nil && staged.State == infrav1.BundleFailed {
		return fmt.Sprintf("%s, and it can't stage the bundle of Kubernetes %s: %s", lack, staged.Version, staged.Message)
	}
	return fmt.Sprintf("%s, and it installs the bundle of Kubernetes %s first%s", lack, version, kept)
}

// otherVersions names programs of the host that have another version than the machine; blank for
// machines that kubeadm does not bootstrap.
func otherVersions(s *scope) string {
	if !isOfKubeadm(s) || s.host.Status.Inventory == nil || s.host.Status.Inventory.Kubernetes == nil {
		return ""
	}
	k := s.host.Status.Inventory.Kubernetes
	var others []string
	for _, program := range []struct{ name, version string }{{"kubeadm", k.Kubeadm.Version}, {"kubelet", k.Kubelet.Version}} {
		if program.version != "" && program.version != s.owner.Spec.Version {
			others = append(others, program.name+" "+program.version)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("The host has %s, and the version of the Machine is %s", strings.Join(others, " and "), s.owner.Spec.Version)
}
