package hoststatus_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// Each row names the reasons of the conditions, with "+" for True, "-" for False and "?"
// for Unknown.
func TestConditions(t *testing.T) {
	type want struct{ connected, clean, bootstrapped, available, ready string }
	all := func(changes ...func(*infrav1.ElementalHost)) []func(*infrav1.ElementalHost) { return changes }
	for name, tc := range map[string]struct {
		changes []func(*infrav1.ElementalHost)
		want    want
	}{
		"free":         {all(), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "+Available", "+Available"}},
		"just created": {all(neverSeen), want{"-AgentNeverConnected", "?NotReported", "-NotClaimed", "-AgentNeverConnected", "-AgentNeverConnected"}},
		"pending": {all(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-PendingApproval", "-PendingApproval"}},
		"rejected": {all(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Rejected", "-Rejected"}},
		"disconnected": {all(disconnected), want{"-AgentDisconnected", "+VerifiedClean", "-NotClaimed", "-AgentDisconnected", "-AgentDisconnected"}},
		"dirty":        {all(dirty), want{"+AgentConnected", "-LeftoversFound", "-NotClaimed", "-LeftoversFound", "-LeftoversFound"}},
		"cordoned": {all(func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Cordoned", "-Cordoned"}},
		"paused": {all(func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Paused", "-Paused"}},
		"being deleted": {all(func(h *infrav1.ElementalHost) { h.DeletionTimestamp = &now }),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Deleting", "-Deleting"}},
		"reserved": {all(claim(reserved)), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-ReservedForCluster", "+ReservedForCluster"}},
		"bound":    {all(claim(bound)), want{"+AgentConnected", "-InUse", "-Bootstrapping", "-Claimed", "-Bootstrapping"}},
		"bootstrapping": {all(claim(bound), operation(bootstrap, running, id)),
			want{"+AgentConnected", "-InUse", "-Bootstrapping", "-Claimed", "-Bootstrapping"}},
		"bootstrapped": {all(claim(bound), operation(bootstrap, succeeded, id)),
			want{"+AgentConnected", "-InUse", "+BootstrapSucceeded", "-Claimed", "+Provisioned"}},
		"bootstrapped, disconnected": {all(claim(bound), operation(bootstrap, succeeded, id), disconnected),
			want{"-AgentDisconnected", "-InUse", "+BootstrapSucceeded", "-Claimed", "-AgentDisconnected"}},
		"bound, reset before a restore": {all(claim(bound), operation(bootstrap, succeeded, id), operation(reset, succeeded, id)),
			want{"+AgentConnected", "-InUse", "-AlreadyReset", "-Claimed", "-AlreadyReset"}},
		"bound, reset for another claim": {all(claim(bound), operation(bootstrap, succeeded, id), operation(reset, succeeded, "old")),
			want{"+AgentConnected", "-InUse", "+BootstrapSucceeded", "-Claimed", "+Provisioned"}},
		"bootstrap failed": {all(claim(bound), operation(bootstrap, failed, id)),
			want{"+AgentConnected", "-InUse", "-BootstrapFailed", "-Claimed", "-BootstrapFailed"}},
		"bootstrap unsupported": {all(claim(bound), operation(bootstrap, infrav1.OperationUnsupported, id)),
			want{"+AgentConnected", "-InUse", "-OperationUnsupported", "-Claimed", "-OperationUnsupported"}},
		"bootstrapped for another claim": {all(claim(bound), operation(bootstrap, succeeded, "old")),
			want{"+AgentConnected", "-InUse", "-Bootstrapping", "-Claimed", "-Bootstrapping"}},
		"bound, status lost by a restore": {all(claim(bound), neverSeen),
			want{"-AgentNeverConnected", "-InUse", "-Bootstrapping", "-Claimed", "-Bootstrapping"}},
		"releasing": {all(claim(releasing)), want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"releasing, disconnected": {all(claim(releasing), disconnected),
			want{"-AgentDisconnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"resetting": {all(claim(releasing), operation(reset, running, id)),
			want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"reset failed": {all(claim(releasing), operation(reset, failed, id)),
			want{"+AgentConnected", "-ResetFailed", "-NotClaimed", "-ResetFailed", "-ResetFailed"}},
		"reset unsupported": {all(claim(releasing), operation(reset, infrav1.OperationUnsupported, id)),
			want{"+AgentConnected", "-OperationUnsupported", "-NotClaimed", "-OperationUnsupported", "-OperationUnsupported"}},
		"reset": {all(claim(releasing), operation(reset, succeeded, id)),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-WaitingForMachineDeletion", "-WaitingForMachineDeletion"}},
		"reset, but not clean": {all(claim(releasing), operation(reset, succeeded, id), dirty),
			want{"+AgentConnected", "-LeftoversFound", "-NotClaimed", "-LeftoversFound", "-LeftoversFound"}},
		"reset for another claim": {all(claim(releasing), operation(reset, succeeded, "old")),
			want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"releasing, status lost by a restore": {all(claim(releasing), neverSeen),
			want{"-AgentNeverConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"cloned": {all(locked), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-IdentityCloned", "-IdentityCloned"}},
		"cloned, bootstrapped": {all(claim(bound), operation(bootstrap, succeeded, id), locked),
			want{"+AgentConnected", "-InUse", "+BootstrapSucceeded", "-IdentityCloned", "-IdentityCloned"}},
		"returned":  {all(undecided(infrav1.PendingReturned)), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Readopted", "-Readopted"}},
		"readopted": {all(undecided(infrav1.PendingReadopted)), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Readopted", "-Readopted"}},
		"ambiguous": {all(undecided(infrav1.PendingAmbiguous)), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-AmbiguousHardware", "-AmbiguousHardware"}},
		"fenced":    {all(fenced), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Fenced", "-Fenced"}},
		"fenced, dead, releasing": {all(claim(releasing), disconnected, fenced),
			want{"-AgentDisconnected", "-Resetting", "-NotClaimed", "-Fenced", "-Fenced"}},
		"fenced, rejected": {all(fenced, rejected), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Rejected", "-Rejected"}},
		"in maintenance":   {all(maintenance), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Maintenance", "-Maintenance"}},
		"in maintenance, disconnected": {all(maintenance, disconnected),
			want{"-AgentDisconnected", "+VerifiedClean", "-NotClaimed", "-Maintenance", "-Maintenance"}},
		"in maintenance, reserved": {all(maintenance, claim(reserved)),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Maintenance", "-Maintenance"}},
		"in maintenance, not yet bootstrapped": {all(maintenance, claim(bound)),
			want{"+AgentConnected", "-InUse", "-Maintenance", "-Maintenance", "-Maintenance"}},
		"in maintenance, bootstrapping": {all(maintenance, claim(bound), operation(bootstrap, running, id)),
			want{"+AgentConnected", "-InUse", "-Bootstrapping", "-Maintenance", "-Maintenance"}},
		"in maintenance, bootstrapped, disconnected": {all(maintenance, claim(bound), operation(bootstrap, succeeded, id), disconnected),
			want{"-AgentDisconnected", "-InUse", "+BootstrapSucceeded", "-Maintenance", "-Maintenance"}},
		"in maintenance, releasing": {all(maintenance, claim(releasing)),
			want{"+AgentConnected", "-ResetPrevented", "-NotClaimed", "-Maintenance", "-ResetPrevented"}},
		"in maintenance, resetting": {all(maintenance, claim(releasing), operation(reset, running, id)),
			want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Maintenance", "-Resetting"}},
		"in maintenance, reset failed": {all(maintenance, claim(releasing), operation(reset, failed, id)),
			want{"+AgentConnected", "-ResetPrevented", "-NotClaimed", "-Maintenance", "-ResetPrevented"}},
		"reset prevented": {all(prevented, claim(releasing)), want{"+AgentConnected", "-ResetPrevented", "-NotClaimed", "-ResetPrevented", "-ResetPrevented"}},
		"reset prevented, bootstrapped": {all(prevented, claim(bound), operation(bootstrap, succeeded, id)),
			want{"+AgentConnected", "-InUse", "+BootstrapSucceeded", "-Claimed", "+Provisioned"}},
		"paused, to be bootstrapped": {all(claim(bound), pausedHost), want{"+AgentConnected", "-InUse", "-Paused", "-Claimed", "-Paused"}},
		"paused, being bootstrapped": {all(claim(bound), pausedHost, operation(bootstrap, running, id)),
			want{"+AgentConnected", "-InUse", "-Bootstrapping", "-Claimed", "-Bootstrapping"}},
		"paused, to be reset": {all(claim(releasing), pausedHost), want{"+AgentConnected", "-Paused", "-NotClaimed", "-Paused", "-Paused"}},
		"paused, being reset": {all(claim(releasing), pausedHost, operation(reset, running, id)),
			want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"quarantined": {all(quarantined), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Quarantined", "-Quarantined"}},
		"quarantined, bound": {all(quarantined, claim(bound), operation(bootstrap, failed, id)),
			want{"+AgentConnected", "-InUse", "-BootstrapFailed", "-Claimed", "-BootstrapFailed"}},
		"held": {all(claim(infrav1.ClaimHeld)), want{"+AgentConnected", "-ResetHeld", "-NotClaimed", "-ResetHeld", "-ResetHeld"}},
		"held, disconnected": {all(claim(infrav1.ClaimHeld), disconnected),
			want{"-AgentDisconnected", "-ResetHeld", "-NotClaimed", "-ResetHeld", "-ResetHeld"}},
		"to be erased": {all(claim(releasing), erase, capable("Reset", "Erase")),
			want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"to be erased, not supported by the agent": {all(claim(releasing), erase, capable("Reset")),
			want{"+AgentConnected", "-OperationUnsupported", "-NotClaimed", "-OperationUnsupported", "-OperationUnsupported"}},
		"to be bootstrapped, not supported by the agent": {all(claim(bound), capable("Reset")),
			want{"+AgentConnected", "-InUse", "-OperationUnsupported", "-Claimed", "-OperationUnsupported"}},
		"to be reset, not supported by the agent": {all(claim(releasing), capable("Bootstrap")),
			want{"+AgentConnected", "-OperationUnsupported", "-NotClaimed", "-OperationUnsupported", "-OperationUnsupported"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(tc.changes...)
			hoststatus.Update(h, now)
			summary := func(conditionType string) string {
				c := meta.FindStatusCondition(h.Status.Conditions, conditionType)
				g.Expect(c).NotTo(BeNil(), conditionType)
				g.Expect(c.LastTransitionTime).To(Equal(now))
				g.Expect(c.Status == metav1.ConditionTrue || c.Message != "").To(BeTrue(), "%s: a condition that is not True must have a message", conditionType)
				return map[metav1.ConditionStatus]string{metav1.ConditionTrue: "+", metav1.ConditionFalse: "-", metav1.ConditionUnknown: "?"}[c.Status] + c.Reason
			}
			g.Expect(want{summary(infrav1.ConnectedCondition), summary(clean), summary(bootstrapped), summary(availab), summary(infrav1.ReadyCondition)}).To(Equal(tc.want))
			g.Expect(hoststatus.Available(h).IsTrue()).To(Equal(tc.want.available[0] == '+'))
			g.Expect(hoststatus.IsReset(h)).To(Equal(name == "reset"))

			before := h.DeepCopy()
			hoststatus.Update(h, metav1.NewTime(now.Add(time.Hour)))
			g.Expect(h).To(Equal(before), "unchanged facts must not change the status")
		})
	}
}

// A host that machines can't claim is not usable, whether it is free or reserved.
func TestUsable(t *testing.T) {
	paused := func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }
	for want, change := range map[string]func(*infrav1.ElementalHost){
		infrav1.AvailableReason: func(*infrav1.ElementalHost) {}, infrav1.MaintenanceReason: maintenance, infrav1.QuarantinedReason: quarantined,
		infrav1.FencedReason: fenced, infrav1.IdentityClonedReason: locked, infrav1.RejectedReason: rejected,
		infrav1.DisconnectedReason: disconnected, infrav1.LeftoversReason: dirty, clusterv1.PausedReason: paused,
		infrav1.CordonedReason: func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} },
	} {
		for _, h := range []*infrav1.ElementalHost{host(change), host(change, claim(reserved))} {
			g := NewWithT(t)
			g.Expect(hoststatus.Usable(h).Reason()).To(Equal(want))
			g.Expect(hoststatus.Usable(h).IsTrue()).To(Equal(want == infrav1.AvailableReason))
			hoststatus.Update(h, now)
			g.Expect(meta.IsStatusConditionTrue(h.Status.Conditions, clusterv1.PausedCondition)).To(Equal(want == clusterv1.PausedReason))
		}
	}
}

// An interrupted clusterctl leaves hosts that nobody would otherwise know to be paused.
func TestHostThatAnInterruptedMoveHasLeft(t *testing.T) {
	g := NewWithT(t)
	left := host(func(h *infrav1.ElementalHost) {
		h.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	})
	g.Expect(hoststatus.Usable(left).Reason()).To(Equal(clusterv1.PausedReason))
	hoststatus.Update(left, now)
	c := meta.FindStatusCondition(left.Status.Conditions, clusterv1.PausedCondition)
	g.Expect(c.Status).To(Equal(metav1.ConditionTrue))
	g.Expect(c.Message).To(And(ContainSubstring(clusterctlv1.DeleteForMoveAnnotation), ContainSubstring("Run clusterctl again")))
}

// If a change of spec changes no condition, only the condition Ready gets the new
// generation.
func TestObservedGeneration(t *testing.T) {
	g := NewWithT(t)
	h := host()
	hoststatus.Update(h, now)
	h.Generation = 4
	hoststatus.Update(h, now)
	for _, c := range h.Status.Conditions {
		want := int64(3)
		if c.Type == infrav1.ReadyCondition {
			want = 4
		}
		g.Expect(c.ObservedGeneration).To(Equal(want), c.Type)
	}
	disconnected(h)
	hoststatus.Update(h, now)
	g.Expect(meta.FindStatusCondition(h.Status.Conditions, infrav1.ConnectedCondition).ObservedGeneration).To(Equal(int64(4)))
}

// What a host has reported of its cluster goes with the claim, so that it counts for no other.
func TestThreat67_SnapshotsGoWithTheClaim(t *testing.T) {
	g := NewWithT(t)
	for phase, stay := range map[infrav1.ClaimPhase]bool{
		infrav1.ClaimBound: true, infrav1.ClaimHeld: true, infrav1.ClaimReleasing: false, infrav1.ClaimReserved: false, "": false,
	} {
		h := host()
		if phase != "" {
			claim(phase)(h)
		}
		h.Status.EtcdSnapshots, h.Status.EtcdSnapshotUpload = &infrav1.HostEtcdSnapshots{}, &infrav1.HostEtcdSnapshotUpload{}
		hoststatus.Update(h, now)
		g.Expect(h.Status.EtcdSnapshots != nil).To(Equal(stay), string(phase))
		g.Expect(h.Status.EtcdSnapshotUpload != nil).To(Equal(stay), string(phase))
	}
}
