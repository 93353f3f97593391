package hoststatus_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

const id = "id-1"

var now = metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))

func host(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Name: "h1", Generation: 3},
		Spec:       infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved},
		Status: infrav1.ElementalHostStatus{
			Connection:  &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: now},
			Cleanliness: &infrav1.HostCleanliness{State: infrav1.CleanlinessClean},
		},
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

func claim(phase infrav1.ClaimPhase) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: id, ClusterName: "c", MachineName: "m", Phase: phase}
	}
}

func operation(kind infrav1.OperationType, state infrav1.OperationState, of string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: kind, ID: of, State: state, Step: "runcmd", Message: "exit 7"})
	}
}

func disconnected(h *infrav1.ElementalHost) {
	h.Status.Connection.State = infrav1.ConnectionDisconnected
}
func neverSeen(h *infrav1.ElementalHost) { h.Status = infrav1.ElementalHostStatus{} }
func dirty(h *infrav1.ElementalHost) {
	h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/etc/kubernetes", "kubelet.service"}}
}

const (
	bootstrap, reset             = infrav1.OperationBootstrap, infrav1.OperationReset
	running, succeeded, failed   = infrav1.OperationRunning, infrav1.OperationSucceeded, infrav1.OperationFailed
	reserved, bound, releasing   = infrav1.ClaimReserved, infrav1.ClaimBound, infrav1.ClaimReleasing
	clean, bootstrapped, availab = infrav1.CleanCondition, infrav1.BootstrappedCondition, infrav1.AvailableCondition
)

// Each row names what conditions say, "+" for True, "-" for False, "?" for Unknown.
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
		"silent": {all(disconnected), want{"-AgentDisconnected", "+VerifiedClean", "-NotClaimed", "-AgentDisconnected", "-AgentDisconnected"}},
		"dirty":  {all(dirty), want{"+AgentConnected", "-LeftoversFound", "-NotClaimed", "-LeftoversFound", "-LeftoversFound"}},
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
		"bootstrapped, silent": {all(claim(bound), operation(bootstrap, succeeded, id), disconnected),
			want{"-AgentDisconnected", "-InUse", "+BootstrapSucceeded", "-Claimed", "-AgentDisconnected"}},
		"bootstrap failed": {all(claim(bound), operation(bootstrap, failed, id)),
			want{"+AgentConnected", "-InUse", "-BootstrapFailed", "-Claimed", "-BootstrapFailed"}},
		"bootstrap unsupported": {all(claim(bound), operation(bootstrap, infrav1.OperationUnsupported, id)),
			want{"+AgentConnected", "-InUse", "-OperationUnsupported", "-Claimed", "-OperationUnsupported"}},
		"bootstrapped for another claim": {all(claim(bound), operation(bootstrap, succeeded, "old")),
			want{"+AgentConnected", "-InUse", "-Bootstrapping", "-Claimed", "-Bootstrapping"}},
		"bound, status lost by a restore": {all(claim(bound), neverSeen),
			want{"-AgentNeverConnected", "-InUse", "-Bootstrapping", "-Claimed", "-Bootstrapping"}},
		"releasing": {all(claim(releasing)), want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"releasing, silent": {all(claim(releasing), disconnected),
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
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(tc.changes...)
			hoststatus.Update(h, now)
			say := func(conditionType string) string {
				c := meta.FindStatusCondition(h.Status.Conditions, conditionType)
				g.Expect(c).NotTo(BeNil(), conditionType)
				g.Expect(c.LastTransitionTime).To(Equal(now))
				g.Expect(c.Status == metav1.ConditionTrue || c.Message != "").To(BeTrue(), "%s: what is not so is explained", conditionType)
				return map[metav1.ConditionStatus]string{metav1.ConditionTrue: "+", metav1.ConditionFalse: "-", metav1.ConditionUnknown: "?"}[c.Status] + c.Reason
			}
			g.Expect(want{say(infrav1.ConnectedCondition), say(clean), say(bootstrapped), say(availab), say(infrav1.ReadyCondition)}).To(Equal(tc.want))
			g.Expect(hoststatus.Available(h).IsTrue()).To(Equal(tc.want.available[0] == '+'))
			g.Expect(hoststatus.IsReset(h)).To(Equal(name == "reset"))

			before := h.DeepCopy()
			hoststatus.Update(h, metav1.NewTime(now.Add(time.Hour)))
			g.Expect(h).To(Equal(before), "the same facts give the same status, to the second")
		})
	}
}

func TestMessagesNameStepAndCause(t *testing.T) {
	g := NewWithT(t)
	h := host(claim(bound), operation(bootstrap, failed, id))
	hoststatus.Update(h, now)
	g.Expect(meta.FindStatusCondition(h.Status.Conditions, infrav1.ReadyCondition).Message).To(Equal("The bootstrap failed at step runcmd: exit 7"))
	h = host(dirty)
	hoststatus.Update(h, now)
	g.Expect(meta.FindStatusCondition(h.Status.Conditions, clean).Message).To(ContainSubstring("/etc/kubernetes, kubelet.service"))
	h = host(disconnected)
	hoststatus.Update(h, now)
	g.Expect(meta.FindStatusCondition(h.Status.Conditions, infrav1.ConnectedCondition).Message).To(ContainSubstring("2026-03-04T05:06:07Z"))
}

// A change of spec that changes nothing else is written once, in Ready.
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

func TestEvents(t *testing.T) {
	at := func(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		h := host(changes...)
		hoststatus.Update(h, now)
		return h
	}
	for name, tc := range map[string]struct {
		before, after *infrav1.ElementalHost
		want          []string
	}{
		"nothing":          {at(), at(), nil},
		"progress":         {at(claim(bound)), at(claim(bound), operation(bootstrap, running, id)), nil},
		"disconnected":     {at(), at(disconnected), []string{"Warning AgentDisconnected"}},
		"connected":        {at(disconnected), at(), []string{"Normal AgentConnected", "Normal Available"}},
		"bootstrapped":     {at(claim(bound)), at(claim(bound), operation(bootstrap, succeeded, id)), []string{"Normal BootstrapSucceeded"}},
		"bootstrap failed": {at(claim(bound)), at(claim(bound), operation(bootstrap, failed, id)), []string{"Warning BootstrapFailed"}},
		"reset failed":     {at(claim(releasing)), at(claim(releasing), operation(reset, failed, id)), []string{"Warning ResetFailed"}},
		"freed":            {at(claim(releasing), operation(reset, succeeded, id)), at(), []string{"Normal Available"}},
		"created":          {host(), at(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }), []string{"Normal AgentConnected", "Normal PendingApproval"}},
		"rejected":         {at(), at(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }), []string{"Warning Rejected"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range hoststatus.Events(tc.before, tc.after) {
				got = append(got, e.Type+" "+e.Reason)
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}
