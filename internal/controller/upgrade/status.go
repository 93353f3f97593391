package upgrade

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// patchStatus sets the condition and writes status in one request, if it changed, and records
// an Event if the reason is new.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalMachineStatus) error {
	is := s.condition
	if is == nil {
		return nil
	}
	was := meta.FindStatusCondition(before.Conditions, is.Type)
	if was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	reconcile.SetConditions(&s.machine.Status.Conditions, s.machine.Generation, r.Clock.Now(), *is)
	written, err := reconcile.PatchStatus(ctx, r.Client, s.machine, statusOf, before)
	if written && (was == nil || was.Reason != is.Reason) {
		r.recordEvent(s)
	}
	return err
}

// recordEvent records the end of an upgrade, and what a person has to see to. Beginnings are
// recorded where they happen.
func (r *Reconciler) recordEvent(s *scope) {
	switch is := s.condition; is.Reason {
	case infrav1.KubernetesUpToDateReason:
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeNormal, is.Reason, "Upgrade", "Host %s has %s", s.host.Name, is.Message)
	case infrav1.UpgradeFailedReason, infrav1.UpgradeRolledBackReason, infrav1.UpgradeNotPossibleReason, infrav1.UpgradeWaitingForReleaseReason:
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeWarning, is.Reason, "Upgrade", "%s", is.Message)
	}
}
