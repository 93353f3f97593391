package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Free hosts are asked too: the log of a reset is the one of a host without a Machine.
func TestLogRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		asked  bool
	}{
		"free":           {func(*infrav1.ElementalHost) {}, true},
		"not requested":  {func(h *infrav1.ElementalHost) { h.Spec.LogRequest = nil }, false},
		"pending":        {func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }, false},
		"locked":         {func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{} }, false},
		"fenced":         {func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} }, false},
		"former agent":   {func(h *infrav1.ElementalHost) { h.Status.Agent = nil }, false},
		"paused":         {func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, false},
		"being deleted":  {func(h *infrav1.ElementalHost) { h.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time} }, false},
		"in maintenance": {func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{}
			host.Spec.Approval = infrav1.ApprovalApproved
			host.Spec.LogRequest = &infrav1.HostLogRequest{ID: "1", Operation: infrav1.OperationReset}
			host.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityLogs)}}
			tc.change(host)
			got := plan.For(host, plan.Site{}, plan.Cluster{}).Desired.Log
			if !tc.asked {
				g.Expect(got).To(BeNil())
				return
			}
			g.Expect(got).To(Equal(&protocol.LogRequest{ID: "1", Operation: protocol.OperationReset}))
		})
	}
}
