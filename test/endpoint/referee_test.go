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
	// memory is for how many turns a host that was given up may still be chosen by
	// a manager that has not seen it.
	memory = 30
	// maxFormer is how many former endpoints are kept.
	maxFormer = 16
	// holding is how long a move may hold others up.
	holding = 15 * time.Minute
)

// referee follows every write of the managers and notes what must never be.
type referee struct {
	w *world
	// spec is the newest of the cluster whose endpoint follows a host.
	spec infrav1.ElementalClusterSpec
	// claimed is the turn at which each host was last a control plane of it.
	claimed map[string]int
	turn    int
	// moves counts changes of an endpoint that was in use; byEvidence those of
	// them that had no other cause.
	moves, byEvidence int64
	// completed is the last move that was said to be complete.
	completed metav1.Time
}

func newReferee(w *world) *referee { return &referee{w: w, claimed: map[string]int{}} }

func (r *referee) violated(format string, args ...any) {
	r.w.T.Helper()
	r.w.note("VIOLATION "+format, args...)
	r.w.T.Errorf("%s: %s", r.w.clock.Now().UTC().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// saw judges an object that a manager has just written.
func (r *referee) saw(m *manager, o client.Object) {
	switch o := o.(type) {
	case *infrav1.ElementalCluster:
		if o.Name == "c" {
			r.sawEndpoint(m, o)
			r.sawCompletion(o)
			return
		}
		if o.Spec.ControlPlaneEndpoint.Host != r.w.clusters[o.Name].user || o.Spec.ControlPlaneEndpointPolicy.HostRef != nil {
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
		if e := serverOf(r.w, o); o.Name != "c-kubeconfig" || !slices.Contains(r.endpoints(), e) {
			r.violated("Secret %s got the endpoint %s", o.Name, e)
		}
	}
}

func has(host *infrav1.ElementalHost, address string) bool {
	return slices.ContainsFunc(host.Status.Addresses, func(a clusterv1.MachineAddress) bool { return a.Address == address })
}

// endpoints are those that the endpoint is and was.
func (r *referee) endpoints() []string {
	out := []string{hostPort(r.spec.ControlPlaneEndpoint.Host)}
	for _, f := range r.spec.ControlPlaneEndpointPolicy.FormerEndpoints {
		out = append(out, hostPort(f.Host))
	}
	return out
}

// sawEndpoint judges a change of the endpoint.
func (r *referee) sawEndpoint(m *manager, o *infrav1.ElementalCluster) {
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
		r.keptFormer(before.ControlPlaneEndpointPolicy.FormerEndpoints, address)
		return
	}
	r.w.note("the endpoint of c is %s of %s, was %s", address, ref.Name, before.ControlPlaneEndpoint.Host)
	host, ok := find[*infrav1.ElementalHost](m.sees, ref.Name)
	if !ok || !has(host, address) {
		r.violated("the endpoint is %s, no address of host %s", address, ref.Name)
		return
	}
	if !r.w.clusters["c"].begun {
		return
	}
	if at, ok := r.claimed[ref.Name]; !ok || r.turn-at > memory {
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
	r.keptFormer(append([]infrav1.FormerEndpoint{{Host: before.ControlPlaneEndpoint.Host}}, former...), address)
	r.judge(m, o, before)
}

// sawCompletion checks that a move that is said to be complete is.
func (r *referee) sawCompletion(o *infrav1.ElementalCluster) {
	if o.Status.Endpoint == nil || o.Status.Endpoint.LastMove == nil {
		return
	}
	move, c := o.Status.Endpoint.LastMove, r.w.clusters["c"]
	if move.CompletedAt.IsZero() || move.StartedAt.Equal(&r.completed) || move.To != o.Spec.ControlPlaneEndpoint.Host {
		return
	}
	r.completed = move.StartedAt
	endpoint := hostPort(move.To)
	for where, is := range map[string]string{
		"cluster-info": c.objects[0], "kubeadm-config": c.objects[1], "kube-proxy": c.objects[2],
		"the Cluster": r.w.endpointOf(c), "the kubeconfig Secret": r.w.kubeconfig(c),
	} {
		if is != endpoint && !r.w.clock.Now().After(move.StartedAt.Add(holding)) {
			r.violated("the move to %s is said to be complete, but %s has %s", endpoint, where, is)
		}
	}
}

// keptFormer checks that no former endpoint is forgotten, apart from the oldest
// of too many and one that is the endpoint again.
func (r *referee) keptFormer(before []infrav1.FormerEndpoint, address string) {
	for i, f := range before {
		if i < maxFormer && f.Host != address && !slices.Contains(r.endpoints(), hostPort(f.Host)) {
			r.violated("the former endpoint %s was forgotten", f.Host)
		}
	}
}

// judge checks that a move has a cause, in what its manager could see.
func (r *referee) judge(m *manager, o *infrav1.ElementalCluster, before infrav1.ElementalClusterSpec) {
	from := before.ControlPlaneEndpointPolicy.HostRef
	seen, ok := find[*infrav1.ElementalCluster](m.sees, o.Name)
	if !ok || from == nil || from.Name == o.Spec.ControlPlaneEndpointPolicy.HostRef.Name {
		return
	}
	if _, asked := seen.Annotations[infrav1.MoveEndpointAnnotation]; asked {
		return
	}
	host, ok := find[*infrav1.ElementalHost](m.sees, from.Name)
	if !ok || host.Spec.Claim == nil || host.Spec.Claim.ClusterName != "c" || host.Spec.Claim.Phase != infrav1.ClaimBound {
		return
	}
	if machine, ok := find[*clusterv1.Machine](m.sees, host.Spec.Claim.MachineName); !ok || !machine.DeletionTimestamp.IsZero() {
		return
	}
	r.byEvidence++
	if host.Status.Connection.State == infrav1.ConnectionConnected && has(host, before.ControlPlaneEndpoint.Host) && host.Status.Endpoint != nil &&
		host.Status.Endpoint.APIServer != nil && host.Status.Endpoint.APIServer.Result == infrav1.ProbeReachable {
		r.violated("the endpoint left host %s, which says that its API server is ready", from.Name)
	}
	r.evidence(m, hostPort(before.ControlPlaneEndpoint.Host), from.Name)
}

// evidence checks that others agree that an endpoint is dead, for long enough.
func (r *referee) evidence(m *manager, endpoint, except string) {
	var since time.Time
	for _, h := range all[*infrav1.ElementalHost](m.sees) {
		if h.Name == except || h.Spec.Claim == nil || h.Spec.Claim.ClusterName != "c" || h.Status.Connection.State != infrav1.ConnectionConnected ||
			h.Status.Endpoint == nil || h.Status.Endpoint.Probe == nil || h.Status.Endpoint.Probe.Endpoint != endpoint {
			continue
		}
		p := h.Status.Endpoint.Probe
		if p.Result == infrav1.ProbeReachable {
			r.violated("the endpoint left %s, which host %s reaches", endpoint, h.Name)
		}
		if since.IsZero() || p.Since.Time.Before(since) {
			since = p.Since.Time
		}
	}
	if since.IsZero() || r.w.clock.Since(since) < failoverAfter*time.Second {
		r.violated("the endpoint left %s, which was unreachable since %s", endpoint, since)
	}
}

// check checks what must hold at every turn.
func (r *referee) check() {
	publish := 0
	r.turn++
	for _, o := range all[*infrav1.ElementalHost](r.w.is) {
		if claim := o.Spec.Claim; claim != nil && claim.ClusterName == "c" && claim.Role.IsControlPlane() && claim.Phase == infrav1.ClaimBound {
			r.claimed[o.Name] = r.turn
		}
		if desired := r.w.planOf(r.w.host(o.Name)).Desired.Endpoint; desired != nil {
			if desired.Publish {
				publish++
			}
			if o.Spec.Claim.ClusterName != "c" || slices.Contains(desired.Former, hostPort(desired.Host)) || desired.Reject == hostPort(desired.Host) {
				r.violated("host %s of %s is told %+v", o.Name, o.Spec.Claim.ClusterName, desired)
			}
		}
	}
	if on, off := r.w.members("c"); r.w.clusters["c"].begun && len(on)+len(off) == 0 {
		r.w.T.Fatalf("the cluster has lost all its control planes")
	}
	if publish > 1 {
		r.violated("%d hosts are told to publish", publish)
	}
}

// missing tells what is not yet as it has to be in the end.
func (r *referee) missing() []string {
	var out []string
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	w, c := r.w, r.w.clusters["c"]
	infra, ok := find[*infrav1.ElementalCluster](w.is, "c")
	w.Expect(ok).To(BeTrue())
	ref := infra.Spec.ControlPlaneEndpointPolicy.HostRef
	if ref == nil {
		return []string{"no host was chosen"}
	}
	endpoint := hostPort(infra.Spec.ControlPlaneEndpoint.Host)
	host, ok := find[*infrav1.ElementalHost](w.is, ref.Name)
	w.Expect(ok).To(BeTrue())
	h := w.host(ref.Name)
	claim := host.Spec.Claim
	expect(claim != nil && claim.ClusterName == "c" && claim.Phase == infrav1.ClaimBound && claim.Role.IsControlPlane(), "host %s has claim %v", ref.Name, claim)
	expect(hostPort(h.address) == endpoint, "host %s has %s, not %s", ref.Name, h.address, endpoint)
	expect(w.serves(h), "host %s doesn't serve", ref.Name)
	expect(h.rejects != endpoint, "host %s rejects its endpoint", ref.Name)
	expect(w.endpointOf(c) == endpoint, "Cluster has %s, not %s", w.endpointOf(c), endpoint)
	expect(w.kubeconfig(c) == endpoint, "the Secret has %s, not %s", w.kubeconfig(c), endpoint)
	expect(c.connected && slices.Contains(r.endpoints(), c.connection), "the connection is at %s (%t)", c.connection, c.connected)
	for i, is := range c.objects {
		expect(is == endpoint, "object %d has %s, not %s", i, is, endpoint)
	}
	for _, other := range w.hosts {
		if other.node != nil && other.node.cluster == "c" {
			expect(other.node.kubeconfigs == endpoint, "host %s has %s, not %s", other.name, other.node.kubeconfigs, endpoint)
			o, _ := find[*infrav1.ElementalHost](w.is, other.name)
			expect(o.Spec.Claim != nil && o.Spec.Claim.Phase == infrav1.ClaimBound, "host %s is no Node any more", other.name)
		}
	}
	expect(infra.Status.Endpoint != nil && infra.Status.Endpoint.Moves == r.moves, "of %d moves were counted %+v", r.moves, infra.Status.Endpoint)
	for _, condition := range []string{infrav1.ControlPlaneEndpointReadyCondition, infrav1.ControlPlaneEndpointFollowedCondition, infrav1.ReadyCondition} {
		expect(isTrue(infra, condition), "%s is %s", condition, explained(infra, condition))
	}
	for _, m := range all[*clusterv1.Machine](w.is) {
		_, hooked := m.Annotations[infrav1.EndpointHookAnnotation]
		expect(m.DeletionTimestamp.IsZero() && m.Status.NodeRef.IsDefined(), "Machine %s is no Node", m.Name)
		expect(hooked == (claim != nil && claim.MachineName == m.Name), "Machine %s has a hook: %t", m.Name, hooked)
	}
	u := w.clusters["u"]
	expect(w.endpointOf(u) == hostPort(u.user) && w.kubeconfig(u) == hostPort(u.user), "the user's cluster has %s", w.kubeconfig(u))
	return out
}
