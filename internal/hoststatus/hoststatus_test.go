package hoststatus_test

import (
	"strings"
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

func rejected(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }
func fenced(h *infrav1.ElementalHost)   { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }
func maintenance(h *infrav1.ElementalHost) {
	h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "new disk"}
}
func erase(h *infrav1.ElementalHost) { h.Spec.Claim.Erase = infrav1.EraseZero }
func locked(h *infrav1.ElementalHost) {
	h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned, Message: "a former key was used"}
}
func prevented(h *infrav1.ElementalHost) {
	h.Annotations = map[string]string{infrav1.PreventResetAnnotation: "data"}
}
func quarantined(h *infrav1.ElementalHost) {
	h.Spec.Quarantine = &infrav1.HostQuarantine{Reason: "2 bootstraps failed", Until: now, Failures: 2}
}
func undecided(why infrav1.PendingReason) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Approval, h.Spec.PendingReason = infrav1.ApprovalPending, why
		h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "sha256:abc"}
	}
}
func agent(change func(*infrav1.HostAgent)) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		if h.Status.Agent == nil {
			h.Status.Agent = &infrav1.HostAgent{Version: "v1.0.0"}
		}
		change(h.Status.Agent)
	}
}
func capable(capabilities ...string) func(*infrav1.ElementalHost) {
	return agent(func(a *infrav1.HostAgent) { a.Capabilities = capabilities })
}
func skewed(seconds int64) func(*infrav1.ElementalHost) {
	return agent(func(a *infrav1.HostAgent) { a.ClockSkewSeconds = seconds })
}
func updated(version string, state infrav1.OperationState) func(*infrav1.ElementalHost) {
	return agent(func(a *infrav1.HostAgent) {
		a.Update = &infrav1.AgentUpdate{Version: version, State: state, Message: "no space left"}
	})
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
		"cloned": {all(locked), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-IdentityCloned", "-IdentityCloned"}},
		"cloned, bootstrapped": {all(claim(bound), operation(bootstrap, succeeded, id), locked),
			want{"+AgentConnected", "-InUse", "+BootstrapSucceeded", "-IdentityCloned", "-IdentityCloned"}},
		"readopted": {all(undecided(infrav1.PendingReadopted)), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Readopted", "-Readopted"}},
		"ambiguous": {all(undecided(infrav1.PendingAmbiguous)), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-AmbiguousHardware", "-AmbiguousHardware"}},
		"fenced":    {all(fenced), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Fenced", "-Fenced"}},
		"fenced, dead, releasing": {all(claim(releasing), disconnected, fenced),
			want{"-AgentDisconnected", "-Resetting", "-NotClaimed", "-Fenced", "-Fenced"}},
		"fenced, rejected": {all(fenced, rejected), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Rejected", "-Rejected"}},
		"in maintenance":   {all(maintenance), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Maintenance", "-Maintenance"}},
		"in maintenance, silent": {all(maintenance, disconnected),
			want{"-AgentDisconnected", "+VerifiedClean", "-NotClaimed", "-Maintenance", "-Maintenance"}},
		"in maintenance, reserved": {all(maintenance, claim(reserved)),
			want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Maintenance", "-Maintenance"}},
		"in maintenance, not yet bootstrapped": {all(maintenance, claim(bound)),
			want{"+AgentConnected", "-InUse", "-Maintenance", "-Maintenance", "-Maintenance"}},
		"in maintenance, bootstrapping": {all(maintenance, claim(bound), operation(bootstrap, running, id)),
			want{"+AgentConnected", "-InUse", "-Bootstrapping", "-Maintenance", "-Maintenance"}},
		"in maintenance, bootstrapped, silent": {all(maintenance, claim(bound), operation(bootstrap, succeeded, id), disconnected),
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
		"quarantined": {all(quarantined), want{"+AgentConnected", "+VerifiedClean", "-NotClaimed", "-Quarantined", "-Quarantined"}},
		"quarantined, bound": {all(quarantined, claim(bound), operation(bootstrap, failed, id)),
			want{"+AgentConnected", "-InUse", "-BootstrapFailed", "-Claimed", "-BootstrapFailed"}},
		"held": {all(claim(infrav1.ClaimHeld)), want{"+AgentConnected", "-ResetHeld", "-NotClaimed", "-ResetHeld", "-ResetHeld"}},
		"held, silent": {all(claim(infrav1.ClaimHeld), disconnected),
			want{"-AgentDisconnected", "-ResetHeld", "-NotClaimed", "-ResetHeld", "-ResetHeld"}},
		"to be erased": {all(claim(releasing), erase, capable("Reset", "Erase")),
			want{"+AgentConnected", "-Resetting", "-NotClaimed", "-Resetting", "-Resetting"}},
		"to be erased, agent can't": {all(claim(releasing), erase, capable("Reset")),
			want{"+AgentConnected", "-OperationUnsupported", "-NotClaimed", "-OperationUnsupported", "-OperationUnsupported"}},
		"to be bootstrapped, agent can't": {all(claim(bound), capable("Reset")),
			want{"+AgentConnected", "-InUse", "-OperationUnsupported", "-Claimed", "-OperationUnsupported"}},
		"to be reset, agent can't": {all(claim(releasing), capable("Bootstrap")),
			want{"+AgentConnected", "-OperationUnsupported", "-NotClaimed", "-OperationUnsupported", "-OperationUnsupported"}},
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

// What nothing is known of has no condition; what is wrong there keeps no host
// from being used.
func TestConditionsOfTheAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		change         func(*infrav1.ElementalHost)
		clock, current string
	}{
		"nothing said":                {func(*infrav1.ElementalHost) {}, "", ""},
		"clock right, nothing pinned": {agent(func(*infrav1.HostAgent) {}), "True ClockSynchronized", ""},
		"clock ahead":                 {skewed(7200), "False ClockSkewed", ""},
		"clock behind":                {skewed(-60), "False ClockSkewed", ""},
		"updating":                    {updated("v2.0.0", running), "True ClockSynchronized", "False AgentUpdating"},
		"updated":                     {updated("v1.0.0", succeeded), "True ClockSynchronized", "True AgentCurrent"},
		"on trial":                    {updated("v1.0.0", running), "True ClockSynchronized", "False AgentUpdating"},
		"replaced by hand since":      {updated("v2.0.0", succeeded), "True ClockSynchronized", ""},
		"mended by hand":              {updated("v1.0.0", failed), "True ClockSynchronized", "True AgentCurrent"},
		"update failed":               {updated("v2.0.0", failed), "True ClockSynchronized", "False AgentUpdateFailed"},
		"update unsupported":          {updated("v2.0.0", infrav1.OperationUnsupported), "True ClockSynchronized", "False AgentUpdateFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(skewed(60), updated("v9", failed))
			hoststatus.Update(h, now)
			h.Status.Agent = nil
			tc.change(h)
			hoststatus.Update(h, now)
			say := func(conditionType string) string {
				c := meta.FindStatusCondition(h.Status.Conditions, conditionType)
				if c == nil {
					return ""
				}
				return string(c.Status) + " " + c.Reason
			}
			g.Expect([]string{say(infrav1.ClockSynchronizedCondition), say(infrav1.AgentCurrentCondition)}).To(Equal([]string{tc.clock, tc.current}))
			g.Expect(hoststatus.Available(h).IsTrue()).To(BeTrue())
			before := h.DeepCopy()
			hoststatus.Update(h, metav1.NewTime(now.Add(time.Hour)))
			g.Expect(h).To(Equal(before))
		})
	}
}

// Messages say what is the matter and what to do.
func TestMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		host      *infrav1.ElementalHost
		condition string
		want      []string
	}{
		"bootstrap failed":  {host(claim(bound), operation(bootstrap, failed, id)), infrav1.ReadyCondition, []string{"The bootstrap failed at step runcmd: exit 7"}},
		"leftovers":         {host(dirty), clean, []string{"/etc/kubernetes, kubelet.service"}},
		"disconnected":      {host(disconnected), infrav1.ConnectedCondition, []string{"2026-03-04T05:06:07Z"}},
		"cloned":            {host(locked), infrav1.ApprovedCondition, []string{"a former key was used", "Destroy the copy, then remove spec.lock", "spec.identity.match"}},
		"readopted":         {host(undecided(infrav1.PendingReadopted)), infrav1.ApprovedCondition, []string{"enrolled before", "Compare the key fingerprint sha256:abc with"}},
		"ambiguous":         {host(undecided(infrav1.PendingAmbiguous)), infrav1.ApprovedCondition, []string{"spec.identity.match", "Compare the key fingerprint"}},
		"fenced":            {host(fenced), infrav1.ApprovedCondition, []string{"spec.fence: dead", "remove spec.fence"}},
		"maintenance":       {host(maintenance), availab, []string{"new disk; until spec.maintenance is removed"}},
		"maintenance, time": {host(maintenance, func(h *infrav1.ElementalHost) { h.Spec.Maintenance.Until = now }), availab, []string{"new disk; until 2026-03-04T05:06:07Z"}},
		"bootstrap waits":   {host(maintenance, claim(bound)), bootstrapped, []string{"waits until the maintenance ends", "new disk"}},
		"reset waits":       {host(maintenance, claim(releasing)), clean, []string{"waits until the maintenance ends", "new disk"}},
		"reset prevented":   {host(prevented, claim(releasing)), clean, []string{"until the annotation " + infrav1.PreventResetAnnotation + " is removed"}},
		"quarantine":        {host(quarantined), availab, []string{"2 bootstraps failed", "2026-03-04T05:06:07Z", "spec.quarantine is removed"}},
		"held":              {host(claim(infrav1.ClaimHeld)), clean, []string{"Machine m is deleted", "set spec.claim.phase to Releasing"}},
		"can't erase":       {host(claim(releasing), erase, capable("Reset")), clean, []string{"can't erase data disks", "nothing is reset", "spec.claim.erase (Zero)"}},
		"clock ahead":       {host(skewed(7200)), infrav1.ClockSynchronizedCondition, []string{"120 minutes ahead of"}},
		"clock behind":      {host(skewed(-60)), infrav1.ClockSynchronizedCondition, []string{"1 minutes behind"}},
		"update failed":     {host(updated("v2.0.0", failed)), infrav1.AgentCurrentCondition, []string{"still of version v1.0.0", "v2.0.0 failed: no space left"}},
		"not erased": {host(claim(releasing), erase, operation(reset, failed, id), func(h *infrav1.ElementalHost) {
			h.Status.Erasure = &infrav1.HostErasure{OperationID: id, Disks: []infrav1.ErasedDisk{
				{Name: "/dev/sda", Result: infrav1.ErasureKept}, {Name: "/dev/sdb", Result: infrav1.ErasureFailed},
				{Name: "/dev/sdc", Result: infrav1.ErasureErased}, {Name: "/dev/sdd", Result: infrav1.ErasureFailed},
			}}
		}), clean, []string{"exit 7; not erased: /dev/sdb, /dev/sdd"}},
		"erased before": {host(claim(releasing), erase, operation(reset, failed, id), func(h *infrav1.ElementalHost) {
			h.Status.Erasure = &infrav1.HostErasure{OperationID: "old", Disks: []infrav1.ErasedDisk{{Name: "/dev/sdb", Result: infrav1.ErasureFailed}}}
		}), clean, []string{"is tried again: exit 7"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			hoststatus.Update(tc.host, now)
			message := meta.FindStatusCondition(tc.host.Status.Conditions, tc.condition).Message
			for _, part := range tc.want {
				g.Expect(message).To(ContainSubstring(part))
			}
			g.Expect(strings.Contains(message, "not erased")).To(Equal(name == "not erased"))
		})
	}
}

// What keeps a free host from machines keeps one from them that is reserved.
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
		"cloned":           {at(), at(locked), []string{"Warning IdentityCloned"}},
		"fenced":           {at(), at(fenced), []string{"Warning Fenced"}},
		"readopted":        {host(), at(undecided(infrav1.PendingReadopted)), []string{"Normal AgentConnected", "Normal Readopted"}},
		"ambiguous":        {host(), at(undecided(infrav1.PendingAmbiguous)), []string{"Normal AgentConnected", "Warning AmbiguousHardware"}},
		"maintenance":      {at(claim(bound)), at(claim(bound), maintenance), []string{"Normal Maintenance"}},
		"its end":          {at(claim(bound), maintenance), at(claim(bound)), []string{"Normal MaintenanceEnded"}},
		"its end, silent":  {at(claim(bound), maintenance, disconnected), at(claim(bound), disconnected), []string{"Warning MaintenanceEnded"}},
		"its end, free":    {at(maintenance), at(), []string{"Normal MaintenanceEnded", "Normal Available"}},
		"released in it": {at(claim(bound), operation(bootstrap, succeeded, id), maintenance), at(claim(releasing), maintenance),
			[]string{"Normal ResetPrevented"}},
		"fenced in it":       {at(claim(bound), maintenance), at(claim(bound), maintenance, fenced), []string{"Warning Fenced"}},
		"disconnected in it": {at(claim(bound), maintenance), at(claim(bound), maintenance, disconnected), []string{"Normal AgentDisconnected"}},
		"held":               {at(claim(bound)), at(claim(infrav1.ClaimHeld)), []string{"Normal ResetHeld"}},
		"clock right":        {at(), at(skewed(0)), nil},
		"clock wrong":        {at(skewed(0)), at(skewed(120)), []string{"Warning ClockSkewed"}},
		"clock still wrong":  {at(skewed(60)), at(skewed(120)), nil},
		"clock right again":  {at(skewed(120)), at(skewed(0)), []string{"Normal ClockSynchronized"}},
		"update failed":      {at(updated("v2.0.0", running)), at(updated("v2.0.0", failed)), []string{"Warning AgentUpdateFailed"}},
		"updated":            {at(updated("v1.0.0", running)), at(updated("v1.0.0", succeeded)), []string{"Normal AgentCurrent"}},
		"rejected":           {at(), at(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }), []string{"Warning Rejected"}},
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
