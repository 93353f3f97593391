//go:build embedded

package move

import (
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// phase is what a host is while everything is moved.
type phase struct {
	host *fleet.Host
	// name is the name of its ElementalHost.
	name string
	// condition has the reason in every management cluster.
	condition, reason string
	// hasMachine is true if a Machine has or had the host.
	hasMachine bool
	// isAway is true if the agent does not run, or is refused.
	isAway bool
}

// phases are hosts that are not simply free or provisioned, by name.
type phases map[string]*phase

// phases brings hosts into all phases. Their Machines are deleted, except the one of the host in maintenance.
func (m *management) phases(edge *fleet.Fleet) phases {
	m.t.Helper()
	all := phases{
		"held":        {condition: infrav1.CleanCondition, reason: infrav1.ResetHeldReason, hasMachine: true},
		"cordoned":    {condition: infrav1.AvailableCondition, reason: infrav1.CordonedReason},
		"maintenance": {condition: infrav1.AvailableCondition, reason: infrav1.MaintenanceReason, hasMachine: true},
		"quarantined": {condition: infrav1.AvailableCondition, reason: infrav1.QuarantinedReason},
		"rejected":    {condition: infrav1.ApprovedCondition, reason: infrav1.RejectedReason, isAway: true},
		"locked":      {condition: infrav1.ApprovedCondition, reason: infrav1.IdentityClonedReason, isAway: true},
		"fenced":      {condition: infrav1.ApprovedCondition, reason: infrav1.FencedReason, isAway: true, hasMachine: true},
		"releasing":   {condition: infrav1.CleanCondition, reason: infrav1.ResettingReason, isAway: true, hasMachine: true},
	}
	for i, name := range []string{"held", "cordoned", "maintenance", "quarantined", "locked", "fenced", "releasing", "rejected"} {
		all[name].host, all[name].name = edge.Hosts()[i], edge.Hosts()[i].Status().ElementalHost
	}
	for _, name := range all.withMachine() {
		m.machine(name, all[name].host)
	}
	m.own()
	for _, name := range all.withMachine() {
		m.awaitProvisioned(name)
	}
	change := func(name string, how func(*infrav1.ElementalHostSpec)) { m.change(all[name].host, how) }
	patch(m, &infrav1.ElementalMachine{ObjectMeta: meta("held")}, func(o *infrav1.ElementalMachine) { o.Spec.Release.Policy = infrav1.ReleaseHold })
	patch(m, &infrav1.ElementalMachine{ObjectMeta: meta("releasing")}, func(o *infrav1.ElementalMachine) {
		o.Spec.Release.DisconnectedTimeoutSeconds = new(int32(0))
	})
	all["fenced"].host.SetNetwork(false)
	all["releasing"].host.SetNetwork(false)
	change("cordoned", func(s *infrav1.ElementalHostSpec) { s.Cordon = &infrav1.HostCordon{Reason: "a fan is broken"} })
	change("maintenance", func(s *infrav1.ElementalHostSpec) { s.Maintenance = &infrav1.HostMaintenance{Reason: "a new disk"} })
	change("quarantined", func(s *infrav1.ElementalHostSpec) {
		s.Quarantine = &infrav1.HostQuarantine{Reason: "three bootstraps failed", Failures: 3, Until: metav1.NewTime(time.Now().Add(24 * time.Hour).Truncate(time.Second))}
	})
	change("locked", func(s *infrav1.ElementalHostSpec) {
		s.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned, Message: "two boot IDs"}
	})
	change("rejected", func(s *infrav1.ElementalHostSpec) { s.Approval = infrav1.ApprovalRejected })
	change("fenced", func(s *infrav1.ElementalHostSpec) { s.Fence = &infrav1.HostFence{Reason: "stolen"} })
	for _, name := range []string{"held", "fenced", "releasing"} {
		m.remove(name)
		m.Eventually(func() error {
			return m.admin.Get(m.t.Context(), client.ObjectKey{Namespace: sites, Name: name}, &infrav1.ElementalMachine{})
		}).ShouldNot(Succeed(), "ElementalMachine %s", name)
	}
	all.expect(m)
	return all
}

// withMachine returns the names of the hosts that a Machine has or had.
func (p phases) withMachine() (names []string) {
	for name, one := range p {
		if one.hasMachine {
			names = append(names, name)
		}
	}
	return names
}

// away returns the names of the ElementalHosts whose agents can't be connected.
func (p phases) away() map[string]bool {
	out := map[string]bool{}
	for _, one := range p {
		if one.isAway {
			out[one.name] = true
		}
	}
	return out
}

// expect waits until all hosts are in their phases here, with the conditions that people see.
func (p phases) expect(m *management) {
	m.t.Helper()
	p.expectConnected(m)
	for name, one := range p {
		m.expectPhase(name, one)
	}
}

// expectConnected is expect for the hosts whose agents are connected. The conditions of others are written later.
func (p phases) expectConnected(m *management) {
	m.t.Helper()
	for name, one := range p {
		if !one.isAway {
			m.expectPhase(name, one)
		}
	}
}

func (m *management) expectPhase(name string, one *phase) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		host := &infrav1.ElementalHost{ObjectMeta: meta(one.name)}
		g.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
		is := apimeta.FindStatusCondition(host.Status.Conditions, one.condition)
		g.Expect(is).NotTo(BeNil(), one.condition)
		g.Expect(is.Reason).To(Equal(one.reason), is.Message)
		g.Expect(host.IsConnected()).To(Equal(!one.isAway), "connected")
	}).Should(Succeed(), "%s host", name)
}

// returned has the hosts return that wait for their reset. They are reset once, and free unless they are fenced.
func (p phases) returned(m *management) {
	m.t.Helper()
	for _, name := range []string{"fenced", "releasing"} {
		p[name].host.SetNetwork(true)
		m.Eventually(func() *infrav1.HostClaim { return m.host(p[name].host).Spec.Claim }).Should(BeNil(), name)
		m.Expect(p[name].host.Status().Done.Resets).To(Equal(1), name)
	}
	m.awaitCondition(p["releasing"].host, infrav1.AvailableCondition, Equal(infrav1.AvailableReason), "")
	m.awaitCondition(p["fenced"].host, infrav1.ApprovedCondition, Equal(infrav1.FencedReason), "stolen")
}
