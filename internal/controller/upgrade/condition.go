package upgrade

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
)

// The functions in this file are pure: they return the condition KubernetesUpToDate for what
// was read.

func no(reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{
		Type: infrav1.KubernetesUpToDateCondition, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// obstacle returns the condition if the host can't be upgraded to the target that its Machine
// has; nil if it can.
func obstacle(s *scope, target inplace.Target) *metav1.Condition {
	if isRequested(s, target) {
		return nil // the request has all that the host needs
	}
	return targetObstacle(s, target)
}

// isRequested reports whether the host was asked for the target.
func isRequested(s *scope, target inplace.Target) bool {
	up := inplace.Request(s.host)
	return up != nil && inplace.TargetOf(up) == target
}

// targetObstacle returns the condition if the host can't be upgraded to the target.
func targetObstacle(s *scope, target inplace.Target) *metav1.Condition {
	if why := target.Obstacle(s.host); why != "" {
		return no(infrav1.UpgradeNotPossibleReason, "The upgrade to %s in place is not possible: %s", target, why)
	}
	if target.Version == "" {
		return nil
	}
	if s.release == nil {
		return no(infrav1.UpgradeWaitingForReleaseReason, "There is no ElementalKubernetesRelease %s in the namespace; create it", release.Name(target.Version))
	}
	if bundleOf(s) == nil {
		return no(infrav1.UpgradeWaitingForReleaseReason, "ElementalKubernetesRelease %s has no bundle for the architecture of host %s",
			s.release.Name, s.host.Name)
	}
	return nil
}

// notNow returns the condition if it is not the host's turn; nil if it is.
func notNow(s *scope, target inplace.Target) *metav1.Condition {
	if other := outdatedControlPlane(s); target.Version != "" && other != "" {
		return no(infrav1.UpgradeWaitingForControlPlane, "Waiting until %s has %s", other, target)
	}
	if s.host.InMaintenance() {
		return inMaintenance(s)
	}
	return nil
}

func inMaintenance(s *scope) *metav1.Condition {
	return no(infrav1.UpgradeHostInMaintenanceReason, "The upgrade waits until the maintenance of host %s ends", s.host.Name)
}

// progress returns the condition for a host that has a request.
func progress(s *scope) *metav1.Condition {
	host, op := s.host, inplace.Operation(s.host)
	target := inplace.TargetOf(inplace.Request(host))
	switch {
	case op == nil:
		return notBegun(s)
	case op.State == infrav1.OperationFailed:
		return failed(s, target, op)
	case op.State == infrav1.OperationUnsupported:
		return no(infrav1.UpgradeNotPossibleReason, "The agent of host %s can't upgrade to %s; update the agent, then set the annotation %s",
			host.Name, target, infrav1.RetryUpgradeAnnotation)
	case op.State == infrav1.OperationSucceeded:
		return upToDate(s)
	case !host.IsConnected():
		return no(infrav1.UpgradeHostNotConnectedReason, "Host %s is not connected; it was upgrading to %s%s and goes on by itself",
			host.Name, target, atStep(op))
	default:
		return no(infrav1.UpgradingReason, "Host %s upgrades to %s%s%s", host.Name, target, atStep(op), detail(op))
	}
}

// notBegun returns the condition for a host that has not begun.
func notBegun(s *scope) *metav1.Condition {
	host, up, staged := s.host, inplace.Request(s.host), s.host.Status.Bundle
	target := inplace.TargetOf(up)
	switch {
	case plan.Paused(host):
		return no(clusterv1.PausedReason, "The upgrade waits until the annotation %s is removed from host %s", clusterv1.PausedAnnotation, host.Name)
	case host.InMaintenance():
		return inMaintenance(s)
	case !host.IsConnected():
		return no(infrav1.UpgradeHostNotConnectedReason, "The upgrade waits until host %s is connected", host.Name)
	case target.Obstacle(host) != "":
		return no(infrav1.UpgradeNotPossibleReason, "The upgrade to %s is no longer possible: %s", target, target.Obstacle(host))
	case staged != nil && staged.SHA256 == up.Bundle.SHA256 && staged.State != infrav1.BundleStaged:
		return staging(host)
	default:
		return no(infrav1.UpgradingReason, "Host %s is to upgrade to %s", host.Name, target)
	}
}

// staging returns the condition for a host that fetches its bundle.
func staging(host *infrav1.ElementalHost) *metav1.Condition {
	text := fmt.Sprintf("Host %s fetches the bundle of Kubernetes %s", host.Name, host.Status.Bundle.Version)
	if host.Status.Bundle.State == infrav1.BundleFailed {
		text = fmt.Sprintf("Host %s could not fetch the bundle of Kubernetes %s, and tries again", host.Name, host.Status.Bundle.Version)
	}
	if host.Status.Bundle.Message != "" {
		text += ": " + host.Status.Bundle.Message
	}
	return no(infrav1.UpgradeStagingReason, "%s", text)
}

// failed returns the condition for a failed upgrade. The agent's message begins with what the
// failure left behind.
func failed(s *scope, target inplace.Target, op *infrav1.HostOperation) *metav1.Condition {
	reason := infrav1.UpgradeFailedReason
	if protocol.UpgradeOutcomeOf(op.Message) == protocol.UpgradeRolledBack {
		reason = infrav1.UpgradeRolledBackReason
	}
	return no(reason, "The upgrade of host %s to %s failed%s: %s. To try again, set the annotation %s here",
		s.host.Name, target, atStep(op), op.Message, infrav1.RetryUpgradeAnnotation)
}

func atStep(op *infrav1.HostOperation) string {
	if op.Step == "" {
		return ""
	}
	return " at step " + op.Step
}

func detail(op *infrav1.HostOperation) string {
	if op.Message == "" {
		return ""
	}
	return ": " + op.Message
}

// waitingForClusterAPI returns the condition for a Machine that is marked, while nobody asks
// for its update.
func waitingForClusterAPI(s *scope) *metav1.Condition {
	return no(infrav1.UpgradeWaitingForClusterAPIReason,
		"Machine %s is marked for an update in place; waiting for Cluster API to write what it is to be and to call the hook UpdateMachine. "+
			"It needs the feature gates RuntimeSDK and InPlaceUpdates, in the core and in the kubeadm control plane provider", s.owner.Name)
}

// finished returns the condition after an upgrade; nil if there was none.
func finished(s *scope) *metav1.Condition {
	was := meta.FindStatusCondition(s.machine.Status.Conditions, infrav1.KubernetesUpToDateCondition)
	up := inplace.Request(s.host)
	switch {
	case isUpToDate(s) && (was != nil || up != nil || inplace.IsMarked(s.owner.Annotations)):
		return upToDate(s)
	case was != nil && inplace.KubeletVersion(s.owner) != "":
		return no(infrav1.UpgradeFailedReason, "%s, and Cluster API does not ask for an upgrade to %s", current(s), inplace.Wanted(s.owner, s.machine, s.host))
	default:
		return nil
	}
}

// current says what the host has of what its Machine is to have.
func current(s *scope) string {
	if inplace.Wanted(s.owner, s.machine, s.host).OSImage == "" {
		return fmt.Sprintf("The Node of host %s has Kubernetes %s", s.host.Name, inplace.KubeletVersion(s.owner))
	}
	return fmt.Sprintf("Host %s has the image %s", s.host.Name, cmp.Or(inplace.OSImage(s.host), "of another system"))
}

func upToDate(s *scope) *metav1.Condition {
	has := "Kubernetes " + s.owner.Spec.Version
	if image := s.machine.Spec.OSImage; image != "" {
		has += " and the image " + string(image)
	}
	return &metav1.Condition{
		Type: infrav1.KubernetesUpToDateCondition, Status: metav1.ConditionTrue, Reason: infrav1.KubernetesUpToDateReason, Message: has,
	}
}
