package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

var site = plan.Site{Servers: []string{"https://a:9444", "https://b:9444"}, TrustBundle: "PEM"}

func host(approval infrav1.Approval, phase infrav1.ClaimPhase) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "h1"}, Spec: infrav1.ElementalHostSpec{Approval: approval}}
	h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset"}}
	if phase != "" {
		h.Spec.Claim = &infrav1.HostClaim{ID: "id-1", ClusterName: "c", MachineName: "m", Phase: phase}
	}
	return h
}

func TestOperationFollowsFromTheClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		want protocol.OperationType
	}{
		"free":                         {host(infrav1.ApprovalApproved, ""), ""},
		"reserved":                     {host(infrav1.ApprovalApproved, infrav1.ClaimReserved), ""},
		"bound":                        {host(infrav1.ApprovalApproved, infrav1.ClaimBound), protocol.OperationBootstrap},
		"releasing":                    {host(infrav1.ApprovalApproved, infrav1.ClaimReleasing), protocol.OperationReset},
		"unknown phase":                {host(infrav1.ApprovalApproved, "Later"), ""},
		"bound, pending":               {host(infrav1.ApprovalPending, infrav1.ClaimBound), ""},
		"bound, no approval":           {host("", infrav1.ClaimBound), ""},
		"bound, rejected":              {host(infrav1.ApprovalRejected, infrav1.ClaimBound), ""},
		"releasing, rejected":          {host(infrav1.ApprovalRejected, infrav1.ClaimReleasing), ""},
		"bound, being deleted":         {deleted(host(infrav1.ApprovalApproved, infrav1.ClaimBound)), ""},
		"releasing, agent can't reset": {capable(host(infrav1.ApprovalApproved, infrav1.ClaimReleasing), "Bootstrap"), ""},
		"releasing, agent can":         {capable(host(infrav1.ApprovalApproved, infrav1.ClaimReleasing), "Reset"), protocol.OperationReset},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := plan.For(tc.host, site)
			g.Expect(p.Desired.Servers).To(Equal(site.Servers), "every host is told where to call")
			g.Expect(p.Desired.TrustBundle).To(Equal(site.TrustBundle))
			g.Expect(p.Revision).NotTo(BeEmpty())
			g.Expect(p.ServerTime).To(BeZero())
			if tc.want == "" {
				g.Expect(p.Operation).To(BeNil())
			} else {
				g.Expect(p.Operation).To(HaveValue(Equal(protocol.Operation{Type: tc.want, ID: "id-1", ClusterName: "c", MachineName: "m"})))
			}
			if tc.want == protocol.OperationBootstrap {
				g.Expect(p.Desired.ProviderID).To(Equal("elemental://edge/h1"))
				g.Expect(p.Desired.Hostname).To(Equal("h1"))
			} else {
				g.Expect(p.Desired.ProviderID).To(BeEmpty(), "the host is no Node")
				g.Expect(p.Desired.Hostname).To(BeEmpty())
			}
		})
	}
}

func capable(h *infrav1.ElementalHost, capabilities ...string) *infrav1.ElementalHost {
	h.Status.Agent.Capabilities = capabilities
	return h
}

func deleted(h *infrav1.ElementalHost) *infrav1.ElementalHost {
	now := metav1.Now()
	h.DeletionTimestamp = &now
	return h
}

func TestHostname(t *testing.T) {
	g := NewWithT(t)
	h := host(infrav1.ApprovalApproved, infrav1.ClaimBound)
	h.Spec.Hostname = "node-7.example.org"
	g.Expect(plan.For(h, site).Desired.Hostname).To(Equal("node-7.example.org"))
	g.Expect(plan.Hostname(h)).To(Equal("node-7.example.org"))
}

// The revision wakes long-polls: it changes with the plan and with nothing else.
func TestRevision(t *testing.T) {
	g := NewWithT(t)
	revision := func(change func(*infrav1.ElementalHost)) string {
		h := host(infrav1.ApprovalApproved, infrav1.ClaimBound)
		change(h)
		return plan.For(h, site).Revision
	}
	same := revision(func(*infrav1.ElementalHost) {})
	g.Expect(revision(func(h *infrav1.ElementalHost) {
		h.ResourceVersion, h.Generation, h.UID = "9", 9, "another after a move"
		h.Labels = map[string]string{"a": "b"}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id-1", State: infrav1.OperationSucceeded}}
	})).To(Equal(same), "an operation that is done is still named, so that a manager whose status was lost is told again")
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"claim":    func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "id-2" },
		"phase":    func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing },
		"free":     func(h *infrav1.ElementalHost) { h.Spec.Claim = nil },
		"hostname": func(h *infrav1.ElementalHost) { h.Spec.Hostname = "x" },
		"approval": func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
	} {
		g.Expect(revision(change)).NotTo(Equal(same), name)
	}
	other := plan.For(host(infrav1.ApprovalApproved, infrav1.ClaimBound), plan.Site{Servers: site.Servers, TrustBundle: "NEW"})
	g.Expect(other.Revision).NotTo(Equal(same))
}
