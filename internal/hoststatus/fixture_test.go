package hoststatus_test

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
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

// adopting has the Machine take over the Node that runs on the host.
func adopting(h *infrav1.ElementalHost) { h.Spec.Claim.Adoption = &infrav1.ClaimAdoption{} }

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
func pausedHost(h *infrav1.ElementalHost) {
	h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
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
