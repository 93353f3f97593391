package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// maxFormer is how many former endpoints are remembered, as the API permits.
const maxFormer = 16

// attend looks after an endpoint in use: it moves it where need be, and has
// everything follow, until nothing uses a former one any more. Whatever was done
// before a crash is found done, as all of it is derived from spec anew.
func (r *Reconciler) attend(ctx context.Context, s *scope, hosts map[string]*infrav1.ElementalHost, holder *infrav1.ElementalHost) (ctrl.Result, error) {
	c, err := r.observe(ctx, s, hosts, holder)
	if err != nil {
		return ctrl.Result{}, err
	}
	ending, err := r.ending(ctx, s, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := failover.Decide(c)
	if d.Move != nil && !ending {
		if err := r.move(ctx, s, c, *d.Move); err != nil {
			return ctrl.Result{}, err
		}
		c.Holder = d.Move.To
		d = failover.Decide(c)
	}
	if d.Refused != "" {
		if err := r.refuse(ctx, s, d.Refused); err != nil {
			return ctrl.Result{}, err
		}
	}
	s.endpoint = endpointState{ready: d.Ready, provided: true, reason: d.Reason, message: d.Message}
	if err := r.publish(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	pending, again, err := r.followHere(ctx, s, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	p, err := r.reject(ctx, s, c, pending)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.note(s, c, d, p)
	if !ending {
		hold(s, c, d, p)
	}
	return ctrl.Result{RequeueAfter: wait(c.Now, d.Next, p.Next, again)}, nil
}

// observe reads who has the cluster's hosts.
func (r *Reconciler) observe(ctx context.Context, s *scope, hosts map[string]*infrav1.ElementalHost, holder *infrav1.ElementalHost) (failover.Cluster, error) {
	c := failover.Cluster{Infra: s.infraCluster, Cluster: s.cluster, Holder: holder, Now: r.Clock.Now()}
	if holder != nil && holder.Spec.Claim != nil && holder.Spec.Claim.ClusterName == s.cluster.Name {
		hosts[holder.Name] = holder // the cache may be behind
	}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		m := failover.Member{Host: hosts[name]}
		var err error
		if m.Machine, err = r.machineOf(ctx, s, m.Host); err != nil {
			return failover.Cluster{}, err
		}
		c.Members = append(c.Members, m)
	}
	return c, nil
}

// machineOf returns the Machine that has the host, or nil if it does not exist.
func (r *Reconciler) machineOf(ctx context.Context, s *scope, host *infrav1.ElementalHost) (*clusterv1.Machine, error) {
	name := host.Spec.Claim.MachineName
	if name == "" {
		return nil, nil // reserved
	}
	machine := &clusterv1.Machine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, machine)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Machine of host %s: %w", host.Name, err)
	}
	if err != nil || machine.Spec.ClusterName != s.cluster.Name {
		return nil, nil //nolint:nilerr // it is not there
	}
	return machine, nil
}

// move records that the endpoint is another host's address. The patch is a
// compare-and-swap, so of several managers one moves it.
func (r *Reconciler) move(ctx context.Context, s *scope, c failover.Cluster, m failover.Move) error {
	policy, from := s.infraCluster.Spec.ControlPlaneEndpointPolicy, s.infraCluster.Spec.ControlPlaneEndpoint
	ctrl.LoggerFrom(ctx).Info("Moving the endpoint", "ElementalHost", klog.KObj(m.To), "cause", m.Cause,
		"from", address.HostPort(from.Host, from.Port), "to", address.HostPort(m.Address, from.Port))
	// Whole seconds, as objects keep them; later than the former choice, which
	// tells moves apart.
	chosenAt := r.Clock.Now().Truncate(time.Second)
	if before := policy.HostRef.ChosenAt.Time; !chosenAt.After(before) {
		chosenAt = before.Add(time.Second)
	}
	err := r.patchSpec(ctx, s, "moving the endpoint to host "+m.To.Name, func(ec *infrav1.ElementalCluster) {
		replaceEndpoint(&ec.Spec, m.Address, policy.HostRef.Name, c.Uses)
		ec.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: m.To.Name, ChosenAt: metav1.NewTime(chosenAt)}
		if m.Cause == infrav1.MoveRequested {
			delete(ec.Annotations, infrav1.MoveEndpointAnnotation)
		}
	})
	if err != nil {
		return err
	}
	status := &s.infraCluster.Status
	if status.Endpoint == nil {
		status.Endpoint = &infrav1.EndpointStatus{}
	}
	status.Endpoint.Moves++
	status.Endpoint.LastMove = &infrav1.EndpointMove{From: from.Host, To: m.Address, Cause: m.Cause, StartedAt: metav1.NewTime(chosenAt)}
	for _, o := range []client.Object{s.infraCluster, s.cluster} {
		r.Recorder.Eventf(o, m.To, corev1.EventTypeNormal, infrav1.EndpointMovingReason, "Move",
			"The control plane endpoint moves from %s to %s, the address of host %s (%s)", from.Host, m.Address, m.To.Name, m.Cause)
	}
	return nil
}

// replaceEndpoint makes an address the endpoint and remembers the former one,
// whose host is given if hosts of the cluster may have known it. Of too many the
// oldest is forgotten that no host uses any more, else the oldest.
func replaceEndpoint(spec *infrav1.ElementalClusterSpec, to, formerHost string, used func(infrav1.FormerEndpoint) bool) {
	from, policy := spec.ControlPlaneEndpoint, &spec.ControlPlaneEndpointPolicy
	spec.ControlPlaneEndpoint.Host = to
	if spec.ControlPlaneEndpoint.Port == 0 {
		spec.ControlPlaneEndpoint.Port = infrav1.DefaultControlPlanePort
	}
	policy.Type = infrav1.EndpointTypeHost
	if from.Host == "" || address.Same(from.Host, to) {
		return
	}
	former := append([]infrav1.FormerEndpoint{{Host: from.Host, Port: from.Port, HostName: formerHost}},
		slices.DeleteFunc(slices.Clone(policy.FormerEndpoints), func(f infrav1.FormerEndpoint) bool {
			return address.Same(f.Host, from.Host) || address.Same(f.Host, to)
		})...)
	for len(former) > maxFormer {
		forget := len(former) - 1
		for i := forget; i > 0; i-- {
			if !used(former[i]) {
				forget = i
				break
			}
		}
		former = slices.Delete(former, forget, forget+1)
	}
	policy.FormerEndpoints = former
}

// refuse drops a request for a move that can't be had.
func (r *Reconciler) refuse(ctx context.Context, s *scope, why string) error {
	err := r.patchSpec(ctx, s, "dropping the request for a move", func(c *infrav1.ElementalCluster) {
		delete(c.Annotations, infrav1.MoveEndpointAnnotation)
	})
	if err != nil {
		return err
	}
	r.Recorder.Eventf(s.infraCluster, nil, corev1.EventTypeWarning, infrav1.NoMoveCandidateReason, "Move",
		"The endpoint stays, and the annotation %s was removed: %s", infrav1.MoveEndpointAnnotation, why)
	return nil
}

// reject has former hosts begin and end to reject connections, and returns how far
// the move is.
func (r *Reconciler) reject(ctx context.Context, s *scope, c failover.Cluster, pending []string) (failover.Progress, error) {
	p := failover.Follow(c, pending)
	if !p.Reject && len(p.Lift) == 0 {
		return p, nil
	}
	now := metav1.NewTime(r.Clock.Now().Truncate(time.Second))
	err := r.patchSpec(ctx, s, "having the former endpoint rejected", func(c *infrav1.ElementalCluster) {
		former := c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints
		if p.Reject {
			former[0].RejectedSince = now
		}
		for _, i := range p.Lift {
			former[i].RejectedSince = metav1.Time{}
		}
	})
	if err != nil {
		return failover.Progress{}, err
	}
	return failover.Follow(c, pending), nil
}

// note puts what is the case into status.
func (r *Reconciler) note(s *scope, c failover.Cluster, d failover.Decision, p failover.Progress) {
	status := s.infraCluster.Status.Endpoint
	if status == nil {
		status = &infrav1.EndpointStatus{}
	}
	status = status.DeepCopy()
	status.Since = s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt
	status.UnreachableSince = metav1.Time{}
	if !d.UnreachableSince.IsZero() {
		status.UnreachableSince = metav1.NewTime(d.UnreachableSince)
	}
	if last := c.LastMove(); last != nil {
		last = last.DeepCopy()
		if status.LastMove == nil || !status.LastMove.StartedAt.Equal(&last.StartedAt) {
			status.Moves++
		}
		if p.Complete && last.CompletedAt.IsZero() {
			last.CompletedAt = metav1.NewTime(r.Clock.Now())
		}
		status.LastMove = last
	}
	s.infraCluster.Status.Endpoint = status
	s.followed = &followedState{remaining: p.Remaining}
}

// wait is how long to wait for the first of those times; zero for none.
func wait(now time.Time, at ...time.Time) time.Duration {
	var first time.Duration
	for _, t := range at {
		if t.IsZero() {
			continue
		}
		if d := max(t.Sub(now), time.Millisecond); first == 0 || d < first {
			first = d
		}
	}
	return first
}

// ending reports whether the cluster is on its way out: its endpoint goes nowhere
// then, and no Machine waits for it.
func (r *Reconciler) ending(ctx context.Context, s *scope, c failover.Cluster) (bool, error) {
	if !s.cluster.DeletionTimestamp.IsZero() {
		return true, nil
	}
	// Only a Machine that goes could go with its control plane.
	leaving := slices.ContainsFunc(c.Members, func(m failover.Member) bool {
		return m.Machine != nil && !m.Machine.DeletionTimestamp.IsZero() && util.IsControlPlaneMachine(m.Machine)
	})
	if !leaving || !s.cluster.Spec.ControlPlaneRef.IsDefined() {
		return false, nil
	}
	return r.controlPlaneEnding(ctx, s)
}
