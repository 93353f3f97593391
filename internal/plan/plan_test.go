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
		"held":                         {host(infrav1.ApprovalApproved, infrav1.ClaimHeld), ""},
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
			p := plan.For(tc.host, site, plan.Cluster{})
			g.Expect(p.Desired.Servers).To(Equal(site.Servers), "every host gets the server URLs")
			g.Expect(p.Desired.TrustBundle).To(Equal(site.TrustBundle))
			g.Expect(p.Revision).NotTo(BeEmpty())
			g.Expect(p.ServerTime).To(BeZero())
			if tc.want == "" {
				g.Expect(p.Operation).To(BeNil())
			} else {
				g.Expect(p.Operation).To(HaveValue(Equal(protocol.Operation{Type: tc.want, ID: "id-1", ClusterName: "c", MachineName: "m"})))
			}
			if tc.want == protocol.OperationBootstrap || name == "held" {
				g.Expect(p.Desired.ProviderID).To(Equal("elemental://edge/h1"))
				g.Expect(p.Desired.Hostname).To(Equal("h1"))
			} else {
				g.Expect(p.Desired.ProviderID).To(BeEmpty(), "the host is no Node")
				g.Expect(p.Desired.Hostname).To(BeEmpty())
			}
		})
	}
}

const (
	reboot    = protocol.OperationReboot
	upgrade   = protocol.OperationUpgrade
	reset     = protocol.OperationReset
	bootstrap = protocol.OperationBootstrap

	nodeUpgrade = protocol.OperationNodeUpgrade
)

// operation returns the type of the host's operation; blank for none.
func operation(h *infrav1.ElementalHost) protocol.OperationType {
	if op := plan.For(h, site, plan.Cluster{}).Operation; op != nil {
		return op.Type
	}
	return ""
}

func able(phase infrav1.ClaimPhase, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h := capable(host(infrav1.ApprovalApproved, phase), "Bootstrap", "Reset", "Reboot", "Upgrade", "Erase", "Update", "Bundle", "NodeUpgrade")
	for _, change := range changes {
		change(h)
	}
	return h
}

func is(kind infrav1.OperationType, state infrav1.OperationState, id string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: kind, ID: id, State: state})
	}
}

func maintenance(h *infrav1.ElementalHost) {
	h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"}
}
func maintained(h *infrav1.ElementalHost) {
	until := metav1.Unix(1, 0)
	h.Spec.Maintenance, h.Spec.MaintenanceEndedAt = &infrav1.HostMaintenance{Reason: "disk", Until: until}, until
}
func fenced(h *infrav1.ElementalHost)   { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }
func locked(h *infrav1.ElementalHost)   { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} }
func toReboot(h *infrav1.ElementalHost) { h.Spec.Reboot = &infrav1.HostReboot{ID: "r"} }
func toErase(h *infrav1.ElementalHost)  { h.Spec.Claim.Erase = infrav1.EraseZero }
func prevented(h *infrav1.ElementalHost) {
	h.Annotations = map[string]string{infrav1.PreventResetAnnotation: ""}
}
func toUpgrade(h *infrav1.ElementalHost) {
	h.Spec.OSUpgrade = &infrav1.HostOSUpgrade{ID: "u", Image: "oci:a"}
}

func TestHostOperations(t *testing.T) {
	const (
		bound, held, releasing     = infrav1.ClaimBound, infrav1.ClaimHeld, infrav1.ClaimReleasing
		running, succeeded, failed = infrav1.OperationRunning, infrav1.OperationSucceeded, infrav1.OperationFailed
	)
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		want protocol.OperationType
	}{
		"locked, bound":     {able(bound, locked), ""},
		"locked, releasing": {able(releasing, locked), ""},

		"maintenance, bound":                   {able(bound, maintenance), ""},
		"maintenance that has ended, bound":    {able(bound, maintained), bootstrap},
		"maintenance that has ended, leaving":  {able(releasing, maintained), reset},
		"maintenance, bootstrap begun":         {able(bound, maintenance, is("Bootstrap", running, "id-1")), bootstrap},
		"maintenance, bootstrapped":            {able(bound, maintenance, is("Bootstrap", succeeded, "id-1")), bootstrap},
		"maintenance, another claim's":         {able(bound, maintenance, is("Bootstrap", succeeded, "id-0")), ""},
		"maintenance, releasing":               {able(releasing, maintenance), ""},
		"maintenance, reset begun":             {able(releasing, maintenance, is("Reset", running, "id-1")), reset},
		"maintenance, reset failed":            {able(releasing, maintenance, is("Reset", failed, "id-1")), ""},
		"reset prevented":                      {able(releasing, prevented), ""},
		"reset prevented, begun":               {able(releasing, prevented, is("Reset", running, "id-1")), reset},
		"reset prevented, bound":               {able(bound, prevented), bootstrap},
		"fenced, bound":                        {able(bound, fenced), ""},
		"fenced, bootstrapped":                 {able(bound, fenced, is("Bootstrap", succeeded, "id-1")), ""},
		"fenced, held":                         {able(held, fenced), ""},
		"fenced, free, to reboot":              {able("", fenced, toReboot), ""},
		"fenced, releasing":                    {able(releasing, fenced), reset},
		"fenced, releasing, prevented, reboot": {able(releasing, fenced, prevented, toReboot), ""},
		"fenced, rejected": {able(releasing, fenced, func(h *infrav1.ElementalHost) {
			h.Spec.Approval = infrav1.ApprovalRejected
		}), ""},

		"reboot, free":                            {able("", toReboot), reboot},
		"reboot, under way":                       {able("", toReboot, is("Reboot", running, "r")), reboot},
		"reboot, done":                            {able("", toReboot, is("Reboot", succeeded, "r")), ""},
		"reboot, failed":                          {able("", toReboot, is("Reboot", failed, "r")), ""},
		"reboot, an earlier one done":             {able("", toReboot, is("Reboot", succeeded, "q")), reboot},
		"reboot, agent can't":                     {capable(able("", toReboot), "Reset"), ""},
		"reboot, to be bootstrapped":              {able(bound, toReboot), bootstrap},
		"reboot, being bootstrapped":              {able(bound, toReboot, is("Bootstrap", running, "id-1")), bootstrap},
		"reboot, bootstrapped":                    {able(bound, toReboot, is("Bootstrap", succeeded, "id-1")), reboot},
		"reboot, bootstrapped, done":              {able(bound, toReboot, is("Bootstrap", succeeded, "id-1"), is("Reboot", succeeded, "r")), bootstrap},
		"reboot in maintenance":                   {able(bound, toReboot, maintenance, is("Bootstrap", succeeded, "id-1")), reboot},
		"reboot before bootstrap, in maintenance": {able(bound, toReboot, maintenance), reboot},
		"reboot, releasing":                       {able(releasing, toReboot), reset},
		"reboot, releasing, prevented":            {able(releasing, toReboot, prevented), reboot},
		"reboot, held":                            {able(held, toReboot), reboot},
		"upgrade, free":                           {able("", toUpgrade), upgrade},
		"upgrade before reboot":                   {able("", toUpgrade, toReboot), upgrade},
		"upgrade, Node":                           {able(bound, toUpgrade, is("Bootstrap", succeeded, "id-1")), bootstrap},
		"upgrade, Node in maintenance":            {able(bound, toUpgrade, maintenance, is("Bootstrap", succeeded, "id-1")), upgrade},

		"erase":                   {able(releasing, toErase), reset},
		"erase, agent can't":      {capable(able(releasing, toErase), "Reset"), ""},
		"erase, bound":            {able(bound, toErase), bootstrap},
		"no erasure, agent can't": {capable(able(releasing), "Reset"), reset},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(operation(tc.host)).To(Equal(tc.want))
		})
	}
	g := NewWithT(t)
	g.Expect(plan.For(able(releasing, toErase), site, plan.Cluster{}).Operation.Erase).To(Equal("Zero"))
	g.Expect(plan.For(able("", toUpgrade), site, plan.Cluster{}).Operation).To(HaveValue(Equal(protocol.Operation{Type: upgrade, ID: "u", Image: "oci:a"})))
	g.Expect(plan.For(able(bound, fenced), site, plan.Cluster{}).Desired.ProviderID).To(BeEmpty(), "a fenced host is no Node")
}

func TestAgentThatIsPinned(t *testing.T) {
	pinned := site
	pinned.Agent = &infrav1.AgentRelease{Version: "v2.0.0", Binaries: []infrav1.AgentBinary{{Architecture: "arm64", SHA256: "a1"}, {Architecture: "amd64", SHA256: "b2"}}}
	of := func(architecture string, changes ...func(*infrav1.ElementalHost)) *protocol.AgentRelease {
		return plan.For(able("", append(changes, func(h *infrav1.ElementalHost) {
			h.Status.Inventory = &infrav1.HostInventory{Architecture: architecture}
		})...), pinned, plan.Cluster{}).Desired.Agent
	}
	g := NewWithT(t)
	g.Expect(of("amd64")).To(HaveValue(Equal(protocol.AgentRelease{Version: "v2.0.0", SHA256: "b2"})))
	g.Expect(of("riscv64")).To(BeNil(), "no agent is pinned for another architecture")
	g.Expect(of("amd64", func(h *infrav1.ElementalHost) { capable(h, "Reset") })).To(BeNil(), "the agent can't update itself")
	for _, change := range []func(*infrav1.ElementalHost){
		fenced, locked, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending },
	} {
		g.Expect(of("amd64", change)).To(BeNil(), "the host is not trusted")
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
	g.Expect(plan.For(h, site, plan.Cluster{}).Desired.Hostname).To(Equal("node-7.example.org"))
	g.Expect(plan.Hostname(h)).To(Equal("node-7.example.org"))
}

// Another machine that becomes a bootstrapped host must not run its bootstrap again.
func TestFinishedBootstrap(t *testing.T) {
	g := NewWithT(t)
	at := metav1.Unix(1790000000, 0)
	h := able(infrav1.ClaimBound)
	g.Expect(plan.For(h, site, plan.Cluster{}).Operation.SucceededAt).To(BeNil())
	h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id-1", State: infrav1.OperationSucceeded, FinishedAt: at}}
	op := plan.For(h, site, plan.Cluster{}).Operation
	g.Expect(op.Type).To(Equal(bootstrap))
	g.Expect(op.SucceededAt).To(HaveValue(BeTemporally("==", at.Time)))
}

// A changed revision ends long polls, so it must change with the plan only.
func TestRevision(t *testing.T) {
	g := NewWithT(t)
	revision := func(change func(*infrav1.ElementalHost)) string {
		h := host(infrav1.ApprovalApproved, infrav1.ClaimBound)
		change(h)
		return plan.For(h, site, plan.Cluster{}).Revision
	}
	same := revision(func(*infrav1.ElementalHost) {})
	g.Expect(revision(func(h *infrav1.ElementalHost) {
		h.ResourceVersion, h.Generation, h.UID = "9", 9, "another after a move"
		h.Labels = map[string]string{"a": "b"}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id-1", State: infrav1.OperationSucceeded}}
	})).To(Equal(same), "a finished operation stays in the plan: the agent reports it again if the manager lost its status")
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"claim":    func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "id-2" },
		"phase":    func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing },
		"free":     func(h *infrav1.ElementalHost) { h.Spec.Claim = nil },
		"hostname": func(h *infrav1.ElementalHost) { h.Spec.Hostname = "x" },
		"approval": func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
	} {
		g.Expect(revision(change)).NotTo(Equal(same), name)
	}
	other := plan.For(host(infrav1.ApprovalApproved, infrav1.ClaimBound), plan.Site{Servers: site.Servers, TrustBundle: "NEW"}, plan.Cluster{})
	g.Expect(other.Revision).NotTo(Equal(same))
}

// Also hosts that wait for their approval follow: they are moved with the others.
func TestSuccessor(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	site := plan.Site{Successor: &infrav1.RegistrationSuccessor{URLs: []string{"https://next.example.com/"}, TrustBundle: "roots"}}
	g.Expect(plan.For(host, site, plan.Cluster{}).Desired.Successor).To(Equal(
		&protocol.Successor{Servers: []string{"https://next.example.com"}, TrustBundle: "roots"}))
	missing := plan.For(host, plan.Site{UnknownRegistration: true}, plan.Cluster{})
	g.Expect(missing.Desired).To(Equal(protocol.Desired{KeepSuccessor: true}))
	revisions := map[string]bool{
		missing.Revision: true, plan.For(host, site, plan.Cluster{}).Revision: true, plan.For(host, plan.Site{}, plan.Cluster{}).Revision: true,
	}
	g.Expect(revisions).To(HaveLen(3), "hosts must learn of each change")
}
