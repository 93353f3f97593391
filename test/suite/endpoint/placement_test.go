package endpoint

import (
	"cmp"
	"maps"
	"slices"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// machineKind is what a Machine is for, as it is in the Machine's name.
type machineKind string

const (
	controlPlaneMachine machineKind = "control-plane"
	workerMachine       machineKind = "worker"
)

const (
	// classLabel is the label by which the control plane selects its hosts: those of
	// serverClass.
	classLabel  = "example.org/class"
	serverClass = "server"
	// minServers is the least number of servers.
	minServers = 5
)

// zones are the failure domains of the hosts.
func zones() []string { return []string{"a", "b", "c"} }

// copyFailureDomains copies the failure domains to the Cluster.
func (s *simulation) copyFailureDomains(c *workload) {
	infra, ok := find[*infrav1.ElementalCluster](s.state, c.name)
	s.Expect(ok).To(BeTrue())
	changeStatus(s, c.name, func(o *clusterv1.Cluster) { o.Status.FailureDomains = infra.Status.FailureDomains })
}

// domains counts the Machines in each failure domain that is published for the control
// plane.
func (s *simulation) domains(c *workload, machines []*clusterv1.Machine) map[string]int {
	is, ok := find[*clusterv1.Cluster](s.state, c.name)
	s.Expect(ok).To(BeTrue())
	count := map[string]int{}
	for _, d := range is.Status.FailureDomains {
		if ptr.Deref(d.ControlPlane, false) {
			count[d.Name] = 0
		}
	}
	for _, m := range machines {
		if _, published := count[m.Spec.FailureDomain]; published {
			count[m.Spec.FailureDomain]++
		}
	}
	return count
}

// nextDomain returns the failure domain that KubeadmControlPlane chooses for a new
// Machine: one with the fewest Machines.
func (s *simulation) nextDomain(c *workload, machines []*clusterv1.Machine) string {
	count := s.domains(c, machines)
	if len(count) == 0 {
		return ""
	}
	fewest := slices.Min(slices.Collect(maps.Values(count)))
	domain, _ := pick(s, slices.DeleteFunc(slices.Sorted(maps.Keys(count)), func(d string) bool { return count[d] > fewest }))
	return domain
}

// superfluous returns the Machine that KubeadmControlPlane deletes to scale down: the
// oldest one outside the published failure domains, else the oldest one in the domain with
// most Machines.
func (s *simulation) superfluous(c *workload, machines []*clusterv1.Machine) *clusterv1.Machine {
	count := s.domains(c, machines)
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	rank := func(m *clusterv1.Machine) int {
		switch n, published := count[m.Spec.FailureDomain]; {
		case !published:
			return 0
		case n == most:
			return 1
		default:
			return 2
		}
	}
	return slices.MinFunc(machines, func(a, b *clusterv1.Machine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// setReplicas scales the control plane.
func (s *simulation) setReplicas(c *workload, n int) {
	s.T.Helper()
	c.controlPlanes = n
	kcp := &controlplanev1.KubeadmControlPlane{}
	s.Expect(s.Admin.Get(s.ctx, client.ObjectKey{Namespace: s.Namespace, Name: c.name}, kcp)).To(Succeed())
	before := kcp.DeepCopy()
	kcp.Spec.Replicas = new(int32(n))
	s.Expect(s.Admin.Patch(s.ctx, kcp, client.MergeFrom(before))).To(Succeed())
}

// heldHosts returns the held hosts.
func (s *simulation) heldHosts() []*infrav1.ElementalHost {
	return slices.DeleteFunc(all[*infrav1.ElementalHost](s.state), func(o *infrav1.ElementalHost) bool {
		return o.Spec.Claim == nil || o.Spec.Claim.Phase != infrav1.ClaimHeld
	})
}

// heldHostIsReleased releases a held host, as an administrator does.
func (s *simulation) heldHostIsReleased() {
	if o, ok := pick(s, s.heldHosts()); ok {
		s.releaseHeld(o)
	}
}

func (s *simulation) releaseHeld(o *infrav1.ElementalHost) {
	s.record("held host %s is released", o.Name)
	change(s, o.Name, func(o *infrav1.ElementalHost) { o.Spec.Claim.Phase = infrav1.ClaimReleasing })
}

// hostIsCordoned cordons a host, or ends a cordon.
func (s *simulation) hostIsCordoned() {
	h, _ := pick(s, s.hosts)
	change(s, h.name, func(o *infrav1.ElementalHost) {
		if o.Spec.Cordon != nil {
			s.record("the cordon of %s ends", h.name)
			o.Spec.Cordon = nil
			return
		}
		s.record("%s is cordoned", h.name)
		o.Spec.Cordon = &infrav1.HostCordon{Reason: "test"}
	})
}

// hostIsMaintained begins or ends the maintenance of a host.
func (s *simulation) hostIsMaintained() {
	h, _ := pick(s, s.hosts)
	change(s, h.name, func(o *infrav1.ElementalHost) {
		if o.InMaintenance() {
			s.record("the maintenance of %s ends", h.name)
			o.Spec.Maintenance = nil
			return
		}
		s.record("%s is in maintenance", h.name)
		o.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "test"}
	})
}

// freeFor returns the hosts that could serve a Machine: clean, with power and contact,
// unclaimed, and kept from machines by nobody. Machines of the control plane need a server
// in any failure domain, as their owner chooses one; workers need a host in theirs.
func (s *simulation) freeFor(m *clusterv1.Machine) []string {
	var free []string
	for _, h := range s.hosts {
		o, ok := find[*infrav1.ElementalHost](s.state, h.name)
		s.Expect(ok).To(BeTrue())
		if !h.on || !h.online || h.node != nil || o.Spec.Claim != nil || o.Spec.Cordon != nil || o.InMaintenance() {
			continue
		}
		c := s.clusters[m.Spec.ClusterName]
		if util.IsControlPlaneMachine(m) && (c.selector == nil || h.isServer) || !util.IsControlPlaneMachine(m) && (c.workerZone == "" || c.workerZone == h.zone) {
			free = append(free, h.name)
		}
	}
	return free
}

// waitingDespiteHost returns the Machines that wait for a host although one is free for them.
// No Machine may do so for ever.
func (s *simulation) waitingDespiteHost() []string {
	var waiting []string
	for _, m := range all[*clusterv1.Machine](s.state) {
		if m.DeletionTimestamp.IsZero() && s.hostOf(m.Name) == nil && len(s.freeFor(m)) > 0 {
			waiting = append(waiting, m.Name)
		}
	}
	return waiting
}

// checkClaim checks that a host was claimed for a Machine that it suits.
func (r *checker) checkClaim(o *infrav1.ElementalHost) {
	claim := o.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimBound {
		return
	}
	m, ok := find[*clusterv1.Machine](r.sim.state, claim.MachineName)
	if !ok {
		return
	}
	h, c := r.sim.host(o.Name), r.sim.clusters[claim.ClusterName]
	if domain := m.Spec.FailureDomain; domain != "" && domain != h.zone {
		r.violated("Machine %s of failure domain %s has host %s of %s", m.Name, domain, h.name, h.zone)
	}
	if util.IsControlPlaneMachine(m) && c.selector != nil && !h.isServer {
		r.violated("Machine %s has host %s, which its selector excludes", m.Name, h.name)
	}
}
