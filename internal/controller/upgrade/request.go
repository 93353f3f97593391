package upgrade

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

const (
	// drainTimeoutSeconds is used if the Machine has no spec.deletion.nodeDrainTimeoutSeconds.
	drainTimeoutSeconds = 600
	// maxDrainTimeoutSeconds is what a request may have.
	maxDrainTimeoutSeconds = 24 * 60 * 60
	// maxIgnoredErrors is what a request may have.
	maxIgnoredErrors = 32
)

// request requests the upgrade to the target. The ID, the role and all else are recorded in the
// host, so that a repetition does the same.
func (r *Reconciler) request(ctx context.Context, s *scope, target inplace.Target) error {
	up := &infrav1.HostNodeUpgrade{
		ID: inplace.NewRequestID(s.host.Spec.Claim), Role: role(s), OSImage: target.OSImage, DrainTimeoutSeconds: drainTimeout(s, target),
	}
	if target.Version != "" {
		up.Bundle = *bundleOf(s)
		if err := r.setKubeadm(ctx, s, up); err != nil {
			return err
		}
	}
	ctrl.LoggerFrom(ctx).Info("Requesting the upgrade of a host", "ElementalHost", s.host.Name, "target", target.String(), "role", up.Role, "request", up.ID)
	if err := r.patchHost(ctx, s, "requesting the upgrade of", func(h *infrav1.ElementalHost) {
		h.Spec.NodeUpgrade = up
		if target.Version != "" {
			h.Spec.Bundle = up.Bundle.DeepCopy()
		}
	}); err != nil {
		return err
	}
	r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeNormal, infrav1.UpgradingReason, "Upgrade",
		"Requested the upgrade of host %s to %s", s.host.Name, target)
	return nil
}

// role returns the role of the host. The first of the control plane upgrades the cluster's own
// configuration.
func role(s *scope) infrav1.NodeUpgradeRole {
	if !isControlPlane(s.owner) {
		return infrav1.UpgradeWorker
	}
	for _, other := range s.others {
		if isControlPlane(other) && inplace.KubeletVersion(other) == s.owner.Spec.Version {
			return infrav1.UpgradeControlPlane
		}
	}
	return infrav1.UpgradeFirstControlPlane
}

// drainTimeout returns how long the drain may take. Nil means no drain: a patch release does
// not need it, while another image needs a reboot, and the Pods of the only Node have nowhere to
// go.
func drainTimeout(s *scope, target inplace.Target) *int32 {
	if target.Version != "" && !inplace.IsMinorUpgrade(inplace.KubeletVersion(s.owner), s.owner.Spec.Version) {
		return nil
	}
	for _, other := range s.others {
		if other.Status.NodeRef.IsDefined() && other.DeletionTimestamp.IsZero() {
			seconds := int32(drainTimeoutSeconds)
			if own := s.owner.Spec.Deletion.NodeDrainTimeoutSeconds; own != nil && *own > 0 {
				seconds = min(*own, maxDrainTimeoutSeconds)
			}
			return &seconds
		}
	}
	return nil
}

// setKubeadm sets what the Machine's KubeadmConfig says about runs of kubeadm: the checks that
// it ignores, and the folder of patches.
func (r *Reconciler) setKubeadm(ctx context.Context, s *scope, up *infrav1.HostNodeUpgrade) error {
	config, err := r.controlPlanes().Config(ctx, s.owner)
	if err != nil || config == nil {
		return err
	}
	ignored := config.Spec.JoinConfiguration.NodeRegistration.IgnorePreflightErrors
	if len(ignored) == 0 {
		ignored = config.Spec.InitConfiguration.NodeRegistration.IgnorePreflightErrors
	}
	up.IgnorePreflightErrors = ignored[:min(len(ignored), maxIgnoredErrors)]
	if up.PatchesDirectory, err = inplace.PatchesDirectory(config.Spec); err != nil {
		return fmt.Errorf("requesting the upgrade of host %s: %w", s.host.Name, err)
	}
	return nil
}

// outdatedControlPlane returns what a worker waits for: a Machine of the control plane, or a
// control plane without Machines, that does not have the version yet; blank if none. A
// kubelet must never be newer than an API server.
func outdatedControlPlane(s *scope) string {
	if isControlPlane(s.owner) {
		return ""
	}
	wanted, found, waiting := s.owner.Spec.Version, false, ""
	for _, other := range s.others {
		if !isControlPlane(other) || !other.DeletionTimestamp.IsZero() {
			continue
		}
		found = true
		if name := "Machine " + other.Name; (isBelow(inplace.KubeletVersion(other), wanted) || inplace.IsMarked(other.Annotations)) &&
			(waiting == "" || name < waiting) {
			waiting = name
		}
	}
	if !found && s.cluster.Spec.ControlPlaneRef.IsDefined() && isBelow(s.controlPlaneVersion, wanted) {
		return s.cluster.Spec.ControlPlaneRef.Kind + " " + s.cluster.Spec.ControlPlaneRef.Name
	}
	return waiting
}

// isBelow reports whether a version is lower than the wanted one. An unknown one is.
func isBelow(is, wanted string) bool {
	a, err := version.ParseSemantic(is)
	if err != nil {
		return true
	}
	b, err := version.ParseSemantic(wanted)
	return err != nil || a.LessThan(b)
}

// readControlPlaneVersion reads the version of a control plane that has no Machines.
func (r *Reconciler) readControlPlaneVersion(ctx context.Context, s *scope) error {
	ref := s.cluster.Spec.ControlPlaneRef
	if isControlPlane(s.owner) || !ref.IsDefined() || hasControlPlane(s.others) {
		return nil
	}
	object, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, s.cluster.Namespace)
	if err != nil {
		return fmt.Errorf("getting the control plane: %w", err)
	}
	s.controlPlaneVersion, _, _ = unstructured.NestedString(object.Object, "status", "version")
	return nil
}

func hasControlPlane(machines []*clusterv1.Machine) bool {
	return slices.ContainsFunc(machines, isControlPlane)
}
