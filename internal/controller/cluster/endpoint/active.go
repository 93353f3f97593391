package endpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// reconcileActiveEndpoint moves an endpoint that is in use if necessary, and updates
// everything that uses a former one. All of it is derived from spec, so that after a
// crash the next reconcile continues.
func (r *Reconciler) reconcileActiveEndpoint(ctx context.Context, s *scope.Scope, hosts map[string]*infrav1.ElementalHost, endpointHost *infrav1.ElementalHost) (Outcome, error) {
	c, err := r.readMembers(ctx, s, hosts, endpointHost)
	if err != nil {
		return Outcome{}, err
	}
	deleting, err := r.isClusterDeleting(ctx, s, c)
	if err != nil {
		return Outcome{}, err
	}
	if !deleting {
		r.askHosts(&c)
	}
	d := failover.Decide(c)
	if d.Move != nil && !deleting {
		if err := r.move(ctx, s, c, *d.Move); err != nil {
			return Outcome{}, err
		}
		c.EndpointHost = d.Move.To
		d = failover.Decide(c)
	}
	if d.RefusedRequest != "" {
		if err := r.refuseRequest(ctx, s, d.RefusedRequest); err != nil {
			return Outcome{}, err
		}
	}
	out := Outcome{Endpoint: scope.Endpoint{Ready: d.Ready, Published: true, Reason: d.Reason, Message: d.Message}}
	if err := r.publish(ctx, s); err != nil {
		return out, err
	}
	pending, retryAt, err := r.replaceFormerEndpoints(ctx, s, c)
	if err != nil {
		return out, err
	}
	p, err := r.updateRejections(ctx, s, c, pending)
	if err != nil {
		return out, err
	}
	r.setStatus(s, c, d, p)
	out.Progress = &p
	if !deleting {
		out.Hooks = planHooks(s, c, d, p)
	}
	out.RequeueAfter = untilFirst(c.Now, d.RecheckAt, p.RecheckAt, retryAt)
	return out, nil
}

// readMembers reads the Machines that the cluster's hosts are claimed for.
func (r *Reconciler) readMembers(ctx context.Context, s *scope.Scope, hosts map[string]*infrav1.ElementalHost, endpointHost *infrav1.ElementalHost) (failover.Cluster, error) {
	c := failover.Cluster{Infra: s.InfraCluster, Cluster: s.Cluster, EndpointHost: endpointHost, Now: r.Clock.Now()}
	if endpointHost != nil && endpointHost.Spec.Claim != nil && endpointHost.Spec.Claim.ClusterName == s.Cluster.Name {
		hosts[endpointHost.Name] = endpointHost // the cache may not show the claim yet
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

// machineOf returns the Machine that the host is claimed for, or nil if it does not
// exist.
func (r *Reconciler) machineOf(ctx context.Context, s *scope.Scope, host *infrav1.ElementalHost) (*clusterv1.Machine, error) {
	name := host.Spec.Claim.MachineName
	if name == "" {
		return nil, nil // the host is reserved
	}
	machine := &clusterv1.Machine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, machine)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Machine of host %s: %w", host.Name, err)
	}
	if err != nil || machine.Spec.ClusterName != s.Cluster.Name {
		return nil, nil //nolint:nilerr // it does not exist
	}
	return machine, nil
}

// askHosts asks the cluster's hosts to confirm their evidence if it may move the endpoint.
func (r *Reconciler) askHosts(c *failover.Cluster) {
	if r.Contacts == nil {
		return
	}
	c.Contacts = map[string]failover.Contact{}
	for _, host := range failover.HostsToAsk(*c) {
		c.Contacts[host.Name] = r.Contacts.Ask(client.ObjectKeyFromObject(host))
	}
}

// isClusterDeleting reports whether the cluster or its control plane is being deleted.
// Then the endpoint does not move, and no Machine waits for it.
func (r *Reconciler) isClusterDeleting(ctx context.Context, s *scope.Scope, c failover.Cluster) (bool, error) {
	if !s.Cluster.DeletionTimestamp.IsZero() {
		return true, nil
	}
	// The control plane is read only if one of its Machines is being deleted.
	machineDeleting := slices.ContainsFunc(c.Members, func(m failover.Member) bool {
		return m.Machine != nil && !m.Machine.DeletionTimestamp.IsZero() && util.IsControlPlaneMachine(m.Machine)
	})
	if !machineDeleting || !s.Cluster.Spec.ControlPlaneRef.IsDefined() {
		return false, nil
	}
	controlPlane, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, s.Cluster.Spec.ControlPlaneRef, s.Cluster.Namespace)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting control plane: %w", err)
	}
	return !controlPlane.GetDeletionTimestamp().IsZero(), nil
}

// setStatus updates status.endpoint in memory.
func (r *Reconciler) setStatus(s *scope.Scope, c failover.Cluster, d failover.Decision, p failover.Progress) {
	status := s.InfraCluster.Status.Endpoint
	if status == nil {
		status = &infrav1.EndpointStatus{}
	}
	status = status.DeepCopy()
	status.Since = s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt
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
	s.InfraCluster.Status.Endpoint = status
}

// untilFirst returns the duration until the first of the times that are set; zero if
// none is.
func untilFirst(now time.Time, times ...time.Time) time.Duration {
	var first time.Duration
	for _, t := range times {
		if t.IsZero() {
			continue
		}
		if d := max(t.Sub(now), time.Millisecond); first == 0 || d < first {
			first = d
		}
	}
	return first
}
