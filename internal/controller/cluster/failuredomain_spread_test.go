package cluster_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/failuredomains"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// spread is a control plane that chooses failure domains as KubeadmControlPlane does.
type spread struct {
	*fixture

	machines, outdated collections.Machines
	created            int
}

// newSpread creates hosts and a control plane with a Machine on each of the hosts in
// members. The first letter of a host's name is its failure domain.
func newSpread(t *testing.T, hosts, members []string) *spread {
	t.Helper()
	s := &spread{fixture: newFixture(t, kubeadm, initialized, external), machines: collections.New(), outdated: collections.New()}
	s.controlPlane(nil)
	for _, name := range hosts {
		h := s.host(name, "10.0.0.1", labelled(zone, name[:1]))
		if slices.Contains(members, name) {
			controllertest.Change(s.Fixture, h, member)
			s.machines.Insert(s.machine("m-"+name, name[:1]))
		}
	}
	s.setReplicas(int32(max(len(members), 1)))
	s.reconcileUntilStable()
	return s
}

// published returns the failure domains that the control plane reads.
func (s *spread) published() []clusterv1.FailureDomain {
	s.Refresh(s.infra)
	return slices.DeleteFunc(slices.Clone(s.infra.Status.FailureDomains), func(d clusterv1.FailureDomain) bool { return !ptr.Deref(d.ControlPlane, false) })
}

// nextDomain is KubeadmControlPlane's choice for a new Machine.
func (s *spread) nextDomain() string {
	current := s.machines.Difference(s.outdated).Filter(collections.Not(collections.HasDeletionTimestamp))
	return failuredomains.PickFewest(s.Ctx, s.published(), s.machines, current)
}

// create creates a Machine in the domain, and gives it a host. It reports whether the
// domain had one.
func (s *spread) create(domain string) (*clusterv1.Machine, bool) {
	s.T.Helper()
	s.created++
	m := s.machine(fmt.Sprintf("new-%d", s.created), domain)
	s.machines.Insert(m)
	request := placement.Constraints{FailureDomain: domain, FailureDomainLabel: zone, ReservedFor: "c"}
	list := &infrav1.ElementalHostList{}
	s.Expect(s.Admin.List(s.Ctx, list)).To(Succeed())
	var hosts []*infrav1.ElementalHost
	for i := range list.Items {
		if list.Items[i].Namespace == s.Namespace {
			hosts = append(hosts, &list.Items[i])
		}
	}
	host := request.Pick(hosts)
	if host != nil {
		controllertest.Change(s.Fixture, host, func(h *infrav1.ElementalHost) {
			member(h)
			h.Spec.Claim.MachineName = m.Name
		})
	}
	s.reconcileUntilStable()
	return m, host != nil
}

// remove deletes a Machine. Its host is free if it is connected, and else still releasing.
func (s *spread) remove(m *clusterv1.Machine) {
	s.T.Helper()
	s.Delete(m)
	delete(s.machines, m.Name)
	delete(s.outdated, m.Name)
	list := &infrav1.ElementalHostList{}
	s.Expect(s.Admin.List(s.Ctx, list)).To(Succeed())
	for i := range list.Items {
		h := &list.Items[i]
		if h.Namespace != s.Namespace || h.Spec.Claim == nil || h.Spec.Claim.MachineName != m.Name {
			continue
		}
		controllertest.Change(s.Fixture, h, func(h *infrav1.ElementalHost) {
			h.Spec.Claim.Phase = infrav1.ClaimReleasing
			if h.IsConnected() {
				h.Spec.Claim = nil
			}
		})
	}
}

// scaleDown deletes the Machine that KubeadmControlPlane would: the oldest of the eligible
// ones outside the published failure domains, else one in the domain with most Machines.
func (s *spread) scaleDown(eligible collections.Machines) {
	s.T.Helper()
	var names []string
	for _, d := range s.published() {
		names = append(names, d.Name)
	}
	candidates := eligible.Filter(collections.Not(collections.InFailureDomains(names...)))
	if len(candidates) == 0 {
		candidates = eligible.Filter(collections.InFailureDomains(failuredomains.PickMost(s.Ctx, s.published(), s.machines, eligible)))
	}
	m := candidates.Oldest()
	s.Expect(m).NotTo(BeNil())
	s.remove(m)
}

// perDomain counts the Machines in each failure domain.
func (s *spread) perDomain() map[string]int {
	out := map[string]int{}
	for _, m := range s.machines {
		out[m.Spec.FailureDomain]++
	}
	return out
}

// Cluster API spreads a control plane over the domains, and every domain that it chooses
// has a host for it.
func TestControlPlaneIsSpread(t *testing.T) {
	zones := []string{"a1", "b1", "c1"}
	t.Run("first Machines", func(t *testing.T) {
		s := newSpread(t, []string{"a1", "a2", "a3", "b1", "c1"}, nil)
		s.setReplicas(3)
		for range 3 {
			s.reconcileUntilStable()
			domain := s.nextDomain()
			_, placed := s.create(domain)
			s.Expect(placed).To(BeTrue(), "no host in %s", domain)
		}
		s.Expect(s.perDomain()).To(Equal(map[string]int{"a": 1, "b": 1, "c": 1}))
	})
	t.Run("surge over three zones, the spare in one of them", func(t *testing.T) {
		s := newSpread(t, append(zones, "a2"), zones)
		for _, m := range s.machines {
			s.setOutdated(m)
			s.outdated.Insert(m)
		}
		t.Log("KubeadmControlPlane may choose before it has marked a Machine as outdated: here a domain without a host")
		waiting, placed := s.create("b")
		s.Expect(placed).To(BeFalse())
		s.Expect(s.domains()).To(Equal([]string{"+a", "-b", "-c"}), "so that its replacement is created in another domain")
		s.remove(waiting)
		for range 3 {
			s.reconcileUntilStable()
			domain := s.nextDomain()
			_, placed := s.create(domain)
			s.Expect(placed).To(BeTrue(), "no host in %s", domain)
			s.scaleDown(s.outdated)
		}
		s.Expect(s.outdated).To(BeEmpty())
	})
	for name, broken := range map[string]func(*infrav1.ElementalHost){
		"dead": disconnected,
		"held": func(h *infrav1.ElementalHost) {
			h.Spec.Claim.Phase, h.Spec.Claim.MachineName = infrav1.ClaimHeld, "former"
		},
	} {
		t.Run(name+" host, the spare elsewhere", func(t *testing.T) {
			s := newSpread(t, append(zones, "b2"), zones)
			controllertest.ChangeStatus(s.Fixture, &infrav1.ElementalHost{ObjectMeta: s.Meta("a1")}, broken)
			controllertest.Change(s.Fixture, &infrav1.ElementalHost{ObjectMeta: s.Meta("a1")}, broken)
			s.remove(s.machines["m-a1"])
			s.reconcileUntilStable()
			s.Expect(s.domains()).To(Equal([]string{"-a", "+b", "-c"}))
			_, placed := s.create(s.nextDomain())
			s.Expect(placed).To(BeTrue())
		})
	}
	t.Run("scaled down, with a free host in one zone", func(t *testing.T) {
		for _, oldest := range zones {
			of := []string{"a1", "a2", "b1", "b2", "c1"}
			s := newSpread(t, append(of, "a3"), of)
			s.machines["m-"+oldest].CreationTimestamp.Time = s.Clock.Now().AddDate(-1, 0, 0)
			t.Log("KubeadmControlPlane deletes the first Machine before the new number of replicas is noticed here")
			s.setReplicas(3)
			s.scaleDown(s.machines)
			s.reconcileUntilStable()
			s.scaleDown(s.machines)
			s.Expect(s.perDomain()).To(Equal(map[string]int{"a": 1, "b": 1, "c": 1}), "oldest: %s", oldest)
		}
	})
}
