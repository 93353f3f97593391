package bootstrapsecret

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// An agent that does not know adoptions, such as one that was downgraded, asks for bootstrap data
// that would initialize another control plane on the host.
func TestThreat102_NoBootstrapDataForAnAdoption(t *testing.T) {
	host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{
		Approval: infrav1.ApprovalApproved, Claim: &infrav1.HostClaim{ID: "c1", Phase: infrav1.ClaimBound, Adoption: &infrav1.ClaimAdoption{}},
	}}
	NewWithT(t).Expect(mayBootstrap(host, "c1")).To(BeFalse())
}

func TestMayBootstrap(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*infrav1.ElementalHost)
		want   bool
	}{
		"bound":           {func(*infrav1.ElementalHost) {}, true},
		"other operation": {func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "c2" }, false},
		"free":            {func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, false},
		"releasing":       {func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }, false},
		"reserved":        {func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReserved }, false},
		"pending":         {func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }, false},
		"running": {func(h *infrav1.ElementalHost) {
			h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "c1", State: infrav1.OperationRunning}}
		}, true},
		"failed": {func(h *infrav1.ElementalHost) {
			h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "c1", State: infrav1.OperationFailed}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{
				Approval: infrav1.ApprovalApproved, Claim: &infrav1.HostClaim{ID: "c1", Phase: infrav1.ClaimBound},
			}}
			test.change(host)
			NewWithT(t).Expect(mayBootstrap(host, "c1")).To(Equal(test.want))
		})
	}
}
