package endpoint

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// staleSteps is for how many steps a manager with a stale cache may still choose a
	// host that was released.
	staleSteps = 30
	// maxFormer is the maximum number of former endpoints in the spec.
	maxFormer = 16
	// maxMoveTime is how long an incomplete move may block the next one.
	maxMoveTime = 15 * time.Minute
)

// checker inspects every write of the managers and reports violated invariants.
type checker struct {
	sim *simulation
	// report is called with each violated invariant.
	report func(string)
	// spec is the newest spec of the ElementalCluster whose endpoint follows a host.
	spec infrav1.ElementalClusterSpec
	// claimed has the step at which each host was last a control plane of that cluster.
	claimed map[string]int
	steps   int
	// moves counts changes of an endpoint that was in use; byEvidence counts the moves
	// whose only cause was evidence of failure.
	moves, byEvidence int64
	// completed is the start of the last move that was reported as complete.
	completed metav1.Time
}

func newChecker(s *simulation) *checker {
	report := func(what string) {
		s.T.Helper()
		s.T.Error(what)
	}
	return &checker{sim: s, report: report, claimed: map[string]int{}}
}

func (r *checker) violated(format string, args ...any) {
	r.sim.T.Helper()
	r.sim.record("VIOLATION "+format, args...)
	r.report(r.sim.clock.Now().UTC().Format("15:04:05") + ": " + fmt.Sprintf(format, args...))
}

// checkWrite checks an object that a manager has just written.
func (r *checker) checkWrite(m *manager, o client.Object) {
	switch o := o.(type) {
	case *infrav1.ElementalHost:
		r.checkClaim(o)
	case *infrav1.ElementalCluster:
		if o.Name == "c" {
			r.checkEndpoint(m, o)
			r.checkCompletion(o)
			return
		}
		if o.Spec.ControlPlaneEndpoint.Host != r.sim.clusters[o.Name].user || o.Spec.ControlPlaneEndpointPolicy.HostRef != nil {
			r.violated("the user's endpoint of %s became %v", o.Name, o.Spec.ControlPlaneEndpoint)
		}
	case *clusterv1.Cluster:
		if e := hostPort(o.Spec.ControlPlaneEndpoint.Host); o.Name != "c" || !slices.Contains(r.endpoints(), e) {
			r.violated("Cluster %s got the endpoint %s", o.Name, e)
		}
	case *clusterv1.Machine:
		if _, hooked := o.Annotations[infrav1.EndpointHookAnnotation]; hooked && o.Spec.ClusterName != "c" {
			r.violated("Machine %s of %s got a hook", o.Name, o.Spec.ClusterName)
		}
	case *corev1.Secret:
		if e := serverOf(r.sim, o); o.Name != "c-kubeconfig" || !slices.Contains(r.endpoints(), e) {
			r.violated("Secret %s got the endpoint %s", o.Name, e)
		}
	}
}

func has(host *infrav1.ElementalHost, address string) bool {
	return slices.ContainsFunc(host.Status.Addresses, func(a clusterv1.MachineAddress) bool { return a.Address == address })
}

// endpoints returns the current endpoint and all former ones.
func (r *checker) endpoints() []string {
	out := []string{hostPort(r.spec.ControlPlaneEndpoint.Host)}
	for _, f := range r.spec.ControlPlaneEndpointPolicy.FormerEndpoints {
		out = append(out, hostPort(f.Host))
	}
	return out
}

// checkEndpoint checks a change of the endpoint.
func (r *checker) checkEndpoint(m *manager, o *infrav1.ElementalCluster) {
	before, ref, was := r.spec, o.Spec.ControlPlaneEndpointPolicy.HostRef, r.spec.ControlPlaneEndpointPolicy.HostRef
	address := o.Spec.ControlPlaneEndpoint.Host
	r.spec = *o.Spec.DeepCopy()
	switch {
	case address == "" && was == nil:
		return
	case address == "" || ref == nil:
		r.violated("the endpoint %s went blank", before.ControlPlaneEndpoint.Host)
		return
	case was != nil && was.Name == ref.Name && address == before.ControlPlaneEndpoint.Host:
		r.checkFormer(before.ControlPlaneEndpointPolicy.FormerEndpoints, address)
		return
	}
	r.sim.record("the endpoint of c is %s of %s, was %s", address, ref.Name, before.ControlPlaneEndpoint.Host)
	host, ok := find[*infrav1.ElementalHost](m.cache, ref.Name)
	if !ok || !has(host, address) {
		r.violated("the endpoint is %s, no address of host %s", address, ref.Name)
		return
	}
	if !r.sim.clusters["c"].initialized {
		return
	}
	if at, ok := r.claimed[ref.Name]; !ok || r.steps-at > staleSteps {
		r.violated("the endpoint moved to host %s, no control plane of the cluster", ref.Name)
	}
	if claim := host.Spec.Claim; claim == nil || claim.ClusterName != "c" || !claim.Role.IsControlPlane() || host.Operation(infrav1.OperationBootstrap, claim.ID) == nil {
		r.violated("the endpoint moved to host %s, whose claim is %v", ref.Name, claim)
	}
	if address == before.ControlPlaneEndpoint.Host {
		return
	}
	r.moves++
	former := before.ControlPlaneEndpointPolicy.FormerEndpoints
	r.checkFormer(append([]infrav1.FormerEndpoint{{Host: before.ControlPlaneEndpoint.Host}}, former...), address)
	r.checkCause(m, o, before)
}

// checkCompletion checks that a move that is reported as complete is complete.
func (r *checker) checkCompletion(o *infrav1.ElementalCluster) {
	if o.Status.Endpoint == nil || o.Status.Endpoint.LastMove == nil {
		return
	}
	move, c := o.Status.Endpoint.LastMove, r.sim.clusters["c"]
	if move.CompletedAt.IsZero() || move.StartedAt.Equal(&r.completed) || move.To != o.Spec.ControlPlaneEndpoint.Host {
		return
	}
	r.completed = move.StartedAt
	endpoint := hostPort(move.To)
	for where, is := range map[string]string{
		"cluster-info": c.objects[0], "kubeadm-config": c.objects[1], "kube-proxy": c.objects[2],
		"the Cluster": r.sim.endpointOf(c), "the kubeconfig Secret": r.sim.kubeconfig(c),
	} {
		if is != endpoint && !r.sim.clock.Now().After(move.StartedAt.Add(maxMoveTime)) {
			r.violated("the move to %s is reported as complete, but %s has %s", endpoint, where, is)
		}
	}
}

// checkFormer checks that no former endpoint is dropped, except the oldest ones above
// the limit and one that became the endpoint again.
func (r *checker) checkFormer(before []infrav1.FormerEndpoint, address string) {
	for i, f := range before {
		if i < maxFormer && f.Host != address && !slices.Contains(r.endpoints(), hostPort(f.Host)) {
			r.violated("the former endpoint %s was dropped", f.Host)
		}
	}
}

// checkCause checks that a move has a cause in the cache of its manager.
func (r *checker) checkCause(m *manager, o *infrav1.ElementalCluster, before infrav1.ElementalClusterSpec) {
	from := before.ControlPlaneEndpointPolicy.HostRef
	seen, ok := find[*infrav1.ElementalCluster](m.cache, o.Name)
	if !ok || from == nil || from.Name == o.Spec.ControlPlaneEndpointPolicy.HostRef.Name {
		return
	}
	if _, asked := seen.Annotations[infrav1.MoveEndpointAnnotation]; asked {
		return
	}
	host, ok := find[*infrav1.ElementalHost](m.cache, from.Name)
	if !ok || host.Spec.Claim == nil || host.Spec.Claim.ClusterName != "c" || host.Spec.Claim.Phase != infrav1.ClaimBound {
		return
	}
	if machine, ok := find[*clusterv1.Machine](m.cache, host.Spec.Claim.MachineName); !ok || !machine.DeletionTimestamp.IsZero() {
		return
	}
	r.byEvidence++
	if host.Status.Connection.State == infrav1.ConnectionConnected && has(host, before.ControlPlaneEndpoint.Host) && host.Status.Endpoint != nil &&
		host.Status.Endpoint.APIServer != nil && host.Status.Endpoint.APIServer.Result == infrav1.ProbeReachable && r.sim.isInContact(r.sim.host(from.Name)) {
		r.violated("the endpoint left host %s, which reports a ready API server", from.Name)
	}
	r.checkEvidence(m, hostPort(before.ControlPlaneEndpoint.Host), from.Name)
}

// checkEvidence checks that all other control planes in contact with the manager found an
// endpoint unreachable for the failover time, and that there is one. Whether a host is in
// contact, what it finds and whether it was asked is known from the host itself, not from
// what the manager has recorded of it.
func (r *checker) checkEvidence(m *manager, endpoint, except string) {
	var since time.Time
	isLive, isConfirmed := false, false
	for _, h := range all[*infrav1.ElementalHost](m.cache) {
		if h.Name == except || h.Spec.Claim == nil || h.Spec.Claim.ClusterName != "c" || h.Status.Connection.State != infrav1.ConnectionConnected ||
			h.Status.Endpoint == nil || h.Status.Endpoint.Probe == nil || h.Status.Endpoint.Probe.Endpoint != endpoint {
			continue
		}
		p := h.Status.Endpoint.Probe
		isInContact := r.sim.isInContact(r.sim.host(h.Name))
		if evidence := r.sim.host(h.Name); r.sim.isLiveEvidence(evidence, endpoint) {
			isLive, isConfirmed = true, isConfirmed || r.sim.isConfirmed(evidence)
		}
		if p.Result == infrav1.ProbeReachable && isInContact {
			r.violated("the endpoint left %s, which host %s reaches", endpoint, h.Name)
		}
		if since.IsZero() || p.Since.Time.Before(since) {
			since = p.Since.Time
		}
	}
	if !isLive {
		r.violated("the endpoint left %s on no live evidence", endpoint)
	} else if !isConfirmed {
		r.violated("the endpoint left %s on evidence that no host has confirmed when it was asked", endpoint)
	}
	if since.IsZero() || r.sim.clock.Since(since) < failoverAfter*time.Second {
		r.violated("the endpoint left %s, which was unreachable since %s", endpoint, since)
	}
}

// checkState checks the invariants of every step.
func (r *checker) checkState() {
	publish := 0
	r.steps++
	for _, o := range all[*infrav1.ElementalHost](r.sim.state) {
		if claim := o.Spec.Claim; claim != nil && claim.ClusterName == "c" && claim.Role.IsControlPlane() && claim.Phase == infrav1.ClaimBound {
			r.claimed[o.Name] = r.steps
		}
		if desired := r.sim.planOf(r.sim.host(o.Name)).Desired.Endpoint; desired != nil {
			if desired.Publish {
				publish++
			}
			if o.Spec.Claim.ClusterName != "c" || slices.Contains(desired.Former, hostPort(desired.Host)) || desired.Reject == hostPort(desired.Host) {
				r.violated("host %s of %s has the plan %+v", o.Name, o.Spec.Claim.ClusterName, desired)
			}
		}
	}
	if on, off := r.sim.members("c"); r.sim.clusters["c"].initialized && len(on)+len(off) == 0 {
		r.sim.T.Fatalf("the cluster has lost all its control planes")
	}
	if publish > 1 {
		r.violated("%d hosts have a plan to publish", publish)
	}
}

// unmet returns the conditions of the final state that are not met yet.
func (r *checker) unmet() []string {
	var out []string
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	s, c := r.sim, r.sim.clusters["c"]
	infra, ok := find[*infrav1.ElementalCluster](s.state, "c")
	s.Expect(ok).To(BeTrue())
	ref := infra.Spec.ControlPlaneEndpointPolicy.HostRef
	if ref == nil {
		return []string{"no host was chosen"}
	}
	endpoint := hostPort(infra.Spec.ControlPlaneEndpoint.Host)
	host, ok := find[*infrav1.ElementalHost](s.state, ref.Name)
	s.Expect(ok).To(BeTrue())
	h := s.host(ref.Name)
	claim := host.Spec.Claim
	expect(claim != nil && claim.ClusterName == "c" && claim.Phase == infrav1.ClaimBound && claim.Role.IsControlPlane(), "host %s has claim %v", ref.Name, claim)
	expect(hostPort(h.address) == endpoint, "host %s has %s, not %s", ref.Name, h.address, endpoint)
	expect(s.serves(h), "host %s doesn't serve", ref.Name)
	expect(h.rejects != endpoint, "host %s rejects its endpoint", ref.Name)
	expect(s.endpointOf(c) == endpoint, "Cluster has %s, not %s", s.endpointOf(c), endpoint)
	expect(s.kubeconfig(c) == endpoint, "the Secret has %s, not %s", s.kubeconfig(c), endpoint)
	expect(c.connected && slices.Contains(r.endpoints(), c.connection), "the connection is at %s (%t)", c.connection, c.connected)
	for i, is := range c.objects {
		expect(is == endpoint, "object %d has %s, not %s", i, is, endpoint)
	}
	for _, other := range s.hosts {
		if other.node != nil && other.node.cluster == "c" {
			expect(other.node.kubeconfigs == endpoint, "host %s has %s, not %s", other.name, other.node.kubeconfigs, endpoint)
			o, _ := find[*infrav1.ElementalHost](s.state, other.name)
			expect(o.Spec.Claim != nil && (o.Spec.Claim.Phase == infrav1.ClaimBound || o.Spec.Claim.Phase == infrav1.ClaimHeld), "host %s lost its claim", other.name)
		}
	}
	expect(infra.Status.Endpoint != nil && infra.Status.Endpoint.Moves == r.moves, "of %d moves were counted %+v", r.moves, infra.Status.Endpoint)
	for _, condition := range []string{infrav1.ControlPlaneEndpointReadyCondition, infrav1.ControlPlaneEndpointFollowedCondition, infrav1.ReadyCondition} {
		expect(isTrue(infra, condition), "%s is %s", condition, explained(infra, condition))
	}
	out = append(out, r.unmetOfMachines(claim)...)
	u := s.clusters["u"]
	expect(s.endpointOf(u) == hostPort(u.user) && s.kubeconfig(u) == hostPort(u.user), "the user's cluster has %s", s.kubeconfig(u))
	return out
}

// unmetOfMachines returns the conditions of the final state of Machines that are not met
// yet. claim is that of the endpoint's host.
func (r *checker) unmetOfMachines(claim *infrav1.HostClaim) []string {
	var out []string
	s := r.sim
	for _, m := range all[*clusterv1.Machine](s.state) {
		isPlaced := s.hostOf(m.Name) != nil || len(s.freeFor(m)) > 0
		if !m.DeletionTimestamp.IsZero() || (!m.Status.NodeRef.IsDefined() && isPlaced) {
			out = append(out, fmt.Sprintf("Machine %s is no Node", m.Name))
		}
		if _, hooked := m.Annotations[infrav1.EndpointHookAnnotation]; hooked != (claim != nil && claim.MachineName == m.Name) {
			out = append(out, fmt.Sprintf("Machine %s has a hook: %t", m.Name, hooked))
		}
	}
	if waiting := s.waitingDespiteHost(); len(waiting) > 0 {
		out = append(out, fmt.Sprintf("Machines wait while a host is free for them: %q", waiting))
	}
	return out
}
