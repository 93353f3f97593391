package placement_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

func TestIsReturning(t *testing.T) {
	reset := func(state infrav1.OperationState) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationReset, ID: "id", State: state}}
		}
	}
	for name, tc := range map[string]struct {
		phase  infrav1.ClaimPhase
		change func(*infrav1.ElementalHost)
		want   bool
	}{
		"about to be reset": {change: func(*infrav1.ElementalHost) {}, want: true},
		"being reset":       {change: reset(infrav1.OperationRunning), want: true},
		"reset and clean":   {change: reset(infrav1.OperationSucceeded), want: true},
		"reset failed":      {change: reset(infrav1.OperationFailed)},
		"can't be reset":    {change: reset(infrav1.OperationUnsupported)},
		"reset with leftovers": {change: func(h *infrav1.ElementalHost) {
			reset(infrav1.OperationSucceeded)(h)
			h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/etc/kubernetes"}}
		}},
		"disconnected":    {change: func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }},
		"cordoned":        {change: func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }},
		"in maintenance":  {change: func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} }},
		"quarantined":     {change: func(h *infrav1.ElementalHost) { h.Spec.Quarantine = &infrav1.HostQuarantine{Until: metav1.Now()} }},
		"paused":          {change: func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }},
		"not to be reset": {change: func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{infrav1.PreventResetAnnotation: ""} }},
		"fenced":          {change: func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "burnt"} }},
		"bound":           {phase: infrav1.ClaimBound, change: func(*infrav1.ElementalHost) {}},
		"held":            {phase: infrav1.ClaimHeld, change: func(*infrav1.ElementalHost) {}},
	} {
		t.Run(name, func(t *testing.T) {
			phase := tc.phase
			if phase == "" {
				phase = infrav1.ClaimReleasing
			}
			NewWithT(t).Expect(placement.IsReturning(host("h", claimed("c", phase), tc.change))).To(Equal(tc.want))
		})
	}
}
