package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
)

// A Machine waits rather than claim a host of another namespace, even if that is the only host and
// the Machine names it. What the Machine says shows nothing of that host.
func TestThreat103_ClaimsStayInTheirNamespace(t *testing.T) {
	for name, ask := range map[string]func(*clusterv1.Machine, *infrav1.ElementalMachine){
		"any host":       func(*clusterv1.Machine, *infrav1.ElementalMachine) {},
		"host by name":   func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { m.Spec.HostName = "of-another-team" },
		"failure domain": func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.FailureDomain = "a" },
		"labels": func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
			m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "big"}}
		},
	} {
		for index, prepare := range map[string]func(*fixture){
			"cache":      func(*fixture) {},
			"free hosts": func(f *fixture) { machine.KeepFreeHosts(f.reconciler) },
		} {
			t.Run(name+", "+index, func(t *testing.T) {
				f := newFixture(t)
				prepare(f)
				host := f.foreignHost()
				f.woken(nil, host.DeepCopy())
				f.Cluster("c")
				_, m := f.Machine("c", "m", ask)
				f.reconcile(m)
				f.Expect(m.Spec.HostRef).To(BeNil())
				f.Expect(f.ExpectCondition(m, infrav1.HostClaimedCondition, no, infrav1.NoHostReason).Message).To(
					Equal("There are no ElementalHosts in this namespace; enrol hosts by an ElementalRegistration"))
				f.Expect(f.woken(nil, host.DeepCopy())).To(BeEmpty(), "a host wakes Machines of its own namespace only")
				f.Refresh(host)
				f.Expect(claimOf(host)).To(Equal("free"))
			})
		}
	}
}

// foreignHost creates a free host in a namespace of its own, which each Machine of the test matches.
func (f *fixture) foreignHost() *infrav1.ElementalHost {
	f.T.Helper()
	host := controllertest.FreeHost(env.Namespace(f.T), "of-another-team", f.Clock.Now())
	host.Labels = map[string]string{"size": "big", infrav1.DefaultFailureDomainLabel: "a"}
	status := host.Status
	f.Expect(f.Admin.Create(f.Ctx, host)).To(Succeed())
	f.Report(host, func(s *infrav1.ElementalHostStatus) {
		s.Connection, s.Cleanliness, s.Addresses = status.Connection, status.Cleanliness, status.Addresses
	})
	return host
}
