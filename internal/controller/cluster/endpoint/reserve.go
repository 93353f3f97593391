package endpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// nominatedDelay is for clusters whose suitable hosts are all about to be claimed by
// others. Some of those claims may fail.
const nominatedDelay = time.Second

// keepHost reports whether the chosen host, which nothing uses as endpoint yet, stays
// the choice. A host that became unsuitable is exchanged for another.
func (r *Reconciler) keepHost(ctx context.Context, s *scope.Scope, host *infrav1.ElementalHost) (_ scope.Endpoint, keep bool, _ error) {
	if host == nil {
		return scope.Endpoint{}, false, nil
	}
	constraints, waiting, err := r.Reader.ControlPlaneConstraints(ctx, s)
	if err != nil {
		return scope.Endpoint{}, false, err
	}
	if waiting != nil {
		return fromHost(host.Name), true, r.publish(ctx, s)
	}
	if why, available := constraints.Available(host); !available {
		ctrl.LoggerFrom(ctx).Info("Exchanging the endpoint's host", "ElementalHost", klog.KObj(host), "why", why)
		return scope.Endpoint{}, false, nil
	}
	if addr, _ := address.ForEndpoint(host, s.InfraCluster.Spec.ControlPlaneEndpointPolicy); addr != s.InfraCluster.Spec.ControlPlaneEndpoint.Host {
		return scope.Endpoint{}, false, nil
	}
	if err := r.applyChoice(ctx, s, host); err != nil {
		if errors.Is(err, claim.ErrTaken) {
			return scope.Endpoint{}, false, nil
		}
		return scope.Endpoint{}, false, err
	}
	return fromHost(host.Name), true, nil
}

// isInUse reports whether the endpoint is in use and can't be exchanged any more: the
// control plane is initialized, or a control-plane machine has claimed the host. A
// worker may have claimed the host before it was reserved; that is no use as endpoint.
func (r *Reconciler) isInUse(ctx context.Context, s *scope.Scope, host *infrav1.ElementalHost) (bool, error) {
	if ptr.Deref(s.Cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true, nil
	}
	if host == nil || host.Spec.Claim == nil || host.Spec.Claim.Phase != infrav1.ClaimBound || host.Spec.Claim.ClusterName != s.Cluster.Name {
		return false, nil
	}
	machine := &clusterv1.Machine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.Claim.MachineName}, machine)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting Machine of host %s: %w", host.Name, err)
	}
	if err != nil {
		return true, nil //nolint:nilerr // the Machine is deleted, but its bootstrap used the endpoint
	}
	return util.IsControlPlaneMachine(machine), nil
}

// chooseHost records a suitable host and its address in spec, and reserves the host.
func (r *Reconciler) chooseHost(ctx context.Context, s *scope.Scope, claimed map[string]*infrav1.ElementalHost) (scope.Endpoint, error) {
	// A former choice must be free before another is made: a machine may claim it.
	if err := r.Unreserve(ctx, s); err != nil {
		if errors.Is(err, claim.ErrTaken) {
			return scope.Endpoint{RequeueAfter: reconcile.ConflictDelay}, nil
		}
		return scope.Endpoint{}, err
	}
	constraints, waiting, err := r.Reader.ControlPlaneConstraints(ctx, s)
	if err != nil {
		return scope.Endpoint{}, err
	}
	if waiting != nil {
		return r.chooseBootstrapped(ctx, s, claimed, *waiting)
	}
	key := client.ObjectKeyFromObject(s.InfraCluster)
	r.Searches.Delete(key)
	hosts, err := r.Reader.Hosts(ctx, s.InfraCluster.Namespace)
	if err != nil {
		return scope.Endpoint{}, err
	}
	withAddress, withoutAddress := splitByAddress(s.InfraCluster.Spec.ControlPlaneEndpointPolicy, constraints, hosts)
	host := r.Nominations.PickForEndpoint(r.Clock.Now(), constraints, withAddress)
	if host == nil && constraints.Pick(withAddress) != nil {
		return scope.Endpoint{
			Reason: infrav1.NoHostReason, Message: "All hosts for the control plane are just being claimed by others",
			RequeueAfter: nominatedDelay,
		}, nil
	}
	if host == nil {
		r.Searches.Set(key, constraints)
		return scope.Endpoint{Reason: infrav1.NoHostReason, Message: "No host for the control plane: " + constraints.Explain(hosts) + withoutAddress}, nil
	}
	host = host.DeepCopy()
	if err := r.recordChoice(ctx, s, host); err != nil {
		return scope.Endpoint{}, err
	}
	if err := r.applyChoice(ctx, s, host); err != nil {
		if errors.Is(err, claim.ErrTaken) {
			return scope.Endpoint{RequeueAfter: reconcile.ConflictDelay}, nil
		}
		return scope.Endpoint{}, err
	}
	r.Recorder.Eventf(s.InfraCluster, host, corev1.EventTypeNormal, infrav1.HostReservedReason, "Reserve",
		"The control plane endpoint is %s, the address of host %s, which is reserved", s.InfraCluster.Spec.ControlPlaneEndpoint.Host, host.Name)
	return fromHost(host.Name), nil
}

func fromHost(name string) scope.Endpoint {
	return scope.Endpoint{Ready: true, Reason: infrav1.EndpointFromHostReason, Message: "The address of host " + name}
}

// chooseBootstrapped is for a control plane without an ElementalMachineTemplate. It may
// still have Machines on our hosts: the endpoint becomes the address of one that is
// bootstrapped.
func (r *Reconciler) chooseBootstrapped(ctx context.Context, s *scope.Scope, claimed map[string]*infrav1.ElementalHost, waiting scope.Endpoint) (scope.Endpoint, error) {
	host, err := r.bootstrappedHost(ctx, s, claimed)
	if err != nil || host == nil {
		waiting.RequeueAfter = scope.ControlPlaneDelay
		return waiting, err
	}
	if err := r.recordChoice(ctx, s, host); err != nil {
		return waiting, err
	}
	return fromHost(host.Name), r.publish(ctx, s)
}

// bootstrappedHost returns the first connected host of the cluster, by name, that has a
// bootstrapped control-plane Machine; nil if no host has one.
func (r *Reconciler) bootstrappedHost(ctx context.Context, s *scope.Scope, claimed map[string]*infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	for _, name := range slices.Sorted(maps.Keys(claimed)) {
		host := claimed[name]
		if addr, _ := address.ForEndpoint(host, s.InfraCluster.Spec.ControlPlaneEndpointPolicy); addr == "" ||
			!meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.BootstrappedCondition) ||
			!meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.ConnectedCondition) {
			continue
		}
		machine := &clusterv1.Machine{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.Claim.MachineName}, machine)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting Machine of host %s: %w", name, err)
		}
		if err == nil && machine.DeletionTimestamp.IsZero() && util.IsControlPlaneMachine(machine) {
			return host, nil
		}
	}
	return nil, nil
}

// recordChoice writes the chosen host and its address to the ElementalCluster.
func (r *Reconciler) recordChoice(ctx context.Context, s *scope.Scope, host *infrav1.ElementalHost) error {
	ctrl.LoggerFrom(ctx).Info("Choosing the endpoint's host", "ElementalHost", klog.KObj(host))
	chosenAt := r.Clock.Now()
	if s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef != nil {
		// Objects have times of whole seconds. A Machine that was created earlier in
		// this second must count as older than the exchange.
		chosenAt = chosenAt.Add(time.Second)
	}
	return scope.PatchSpec(ctx, r.Client, s, "recording the choice of host "+host.Name, func(c *infrav1.ElementalCluster) {
		addr, _ := address.ForEndpoint(host, c.Spec.ControlPlaneEndpointPolicy)
		// Nothing has used the former address as endpoint, so its host is not recorded.
		replaceEndpoint(&c.Spec, addr, "", func(infrav1.FormerEndpoint) bool { return false })
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: host.Name, ChosenAt: metav1.NewTime(chosenAt)}
	})
}

// applyChoice carries out a recorded choice. The order matters: a machine may claim the
// host as soon as it is reserved, so Machines whose bootstrap data names another
// endpoint must be deleted before.
func (r *Reconciler) applyChoice(ctx context.Context, s *scope.Scope, host *infrav1.ElementalHost) error {
	if err := r.publish(ctx, s); err != nil {
		return err
	}
	if err := r.outdated().deleteUnclaimed(ctx, s); err != nil {
		return err
	}
	return claim.Reserve(ctx, r.Client, host, s.Cluster.Name)
}

// splitByAddress returns the hosts that have an address for the endpoint, and describes
// how many otherwise suitable hosts have none.
func splitByAddress(policy infrav1.ControlPlaneEndpointPolicy, constraints placement.Constraints, hosts []*infrav1.ElementalHost) (with []*infrav1.ElementalHost, without string) {
	var count int
	var reason string
	for _, host := range hosts {
		addr, missing := address.ForEndpoint(host, policy)
		if addr != "" {
			with = append(with, host)
			continue
		}
		if _, available := constraints.Available(host); available {
			count++
			reason = missing
		}
	}
	if count == 0 {
		return with, ""
	}
	return with, fmt.Sprintf(", %d %s", count, reason)
}

// Unreserve ends all reservations of the cluster. It fails with claim.ErrTaken if a
// machine has claimed a reserved host meanwhile.
func (r *Reconciler) Unreserve(ctx context.Context, s *scope.Scope) error {
	name := scope.ClusterName(s)
	if name == "" {
		return nil
	}
	hosts, err := r.Reader.ClaimedHosts(ctx, s.InfraCluster.Namespace, name)
	if err != nil {
		return err
	}
	// The cache may not show the latest reservation yet.
	if ref := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef; ref != nil && hosts[ref.Name] == nil {
		live := &infrav1.ElementalHost{}
		err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.InfraCluster.Namespace, Name: ref.Name}, live)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading host %s: %w", ref.Name, err)
		}
		if err == nil && live.Spec.Claim != nil && live.Spec.Claim.ClusterName == name {
			hosts[ref.Name] = live
		}
	}
	for _, host := range hosts {
		if host.Spec.Claim.Phase != infrav1.ClaimReserved {
			continue
		}
		if err := claim.Unreserve(ctx, r.Client, host, name); err != nil {
			return err
		}
	}
	return nil
}
