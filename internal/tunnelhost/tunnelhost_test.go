package tunnelhost_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

func TestFeasible(t *testing.T) {
	for name, tc := range map[string]struct {
		agent *infrav1.HostAgent
		want  bool
	}{
		"no agent":          {},
		"an old agent":      {agent: &infrav1.HostAgent{Capabilities: []string{"Bootstrap"}}},
		"a tunnel only":     {agent: &infrav1.HostAgent{Capabilities: []string{"Tunnel"}}},
		"an endpoint only":  {agent: &infrav1.HostAgent{Capabilities: []string{"LocalEndpoint"}}},
		"everything needed": {agent: &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "LocalEndpoint", "Tunnel"}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{Status: infrav1.ElementalHostStatus{Agent: tc.agent}}
			why, ok := tunnelhost.Feasible(host)
			g.Expect(ok).To(Equal(tc.want))
			if tc.want {
				g.Expect(why).To(BeEmpty())
			} else {
				g.Expect(why).NotTo(BeEmpty())
			}
			g.Expect(tunnelhost.IsCapable(host)).To(Equal(tc.want))
		})
	}
}

func TestMayCarry(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		want   bool
	}{
		"bound":     {func(*infrav1.ElementalHost) {}, true},
		"free":      {func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, false},
		"reserved":  {func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReserved }, false},
		"held":      {func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimHeld }, false},
		"releasing": {func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }, false},
		"fenced":    {func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{} }, false},
		"locked":    {func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{} }, false},
		"rejected":  {func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }, false},
		"being deleted": {func(h *infrav1.ElementalHost) {
			h.DeletionTimestamp = &metav1.Time{Time: h.CreationTimestamp.AddDate(1, 0, 0)}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{
				Approval: infrav1.ApprovalApproved, Claim: &infrav1.HostClaim{Phase: infrav1.ClaimBound},
			}}
			tc.change(host)
			NewWithT(t).Expect(tunnelhost.MayCarry(host)).To(Equal(tc.want))
		})
	}
}

func TestIsReady(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint *infrav1.HostEndpoint
		want     bool
	}{
		"nothing known": {},
		"not probed":    {endpoint: &infrav1.HostEndpoint{}},
		"refuses":       {endpoint: &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeUnreachable}}},
		"ready":         {endpoint: &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.ElementalHost{Status: infrav1.ElementalHostStatus{Endpoint: tc.endpoint}}
			NewWithT(t).Expect(tunnelhost.IsReady(host)).To(Equal(tc.want))
		})
	}
}
