package cluster

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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// keepHost reports whether a host that nothing uses yet as endpoint stays it. One
// that can't be used any more is exchanged.
func (r *Reconciler) keepHost(ctx context.Context, s *scope, host *infrav1.ElementalHost) (bool, error) {
	if host == nil {
		return false, nil
	}
	request, ok, err := r.request(ctx, s)
	if err != nil {
		return false, err
	}
	if !ok {
		s.endpoint = fromHost(host.Name)
		return true, r.publish(ctx, s)
	}
	if why, suits := request.Suits(host); !suits {
		ctrl.LoggerFrom(ctx).Info("Exchanging the endpoint's host", "ElementalHost", klog.KObj(host), "why", why)
		return false, nil
	}
	if is, _ := address.OfPolicy(host, s.infraCluster.Spec.ControlPlaneEndpointPolicy); is != s.infraCluster.Spec.ControlPlaneEndpoint.Host {
		return false, nil
	}
	if err := r.settle(ctx, s, host); err != nil {
		if errors.Is(err, claim.ErrTaken) {
			return false, nil
		}
		return false, err
	}
	s.endpoint = fromHost(host.Name)
	return true, nil
}

// inUse reports whether the endpoint is beyond exchanging: the control plane is
// up, or one of its machines has the host. A worker may have got the host first
// if it was not yet reserved; that does not make it the endpoint.
func (r *Reconciler) inUse(ctx context.Context, s *scope, host *infrav1.ElementalHost) (bool, error) {
	if ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true, nil
	}
	if host == nil || host.Spec.Claim == nil || host.Spec.Claim.Phase != infrav1.ClaimBound || host.Spec.Claim.ClusterName != s.cluster.Name {
		return false, nil
	}
	machine := &clusterv1.Machine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.Claim.MachineName}, machine)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting Machine of host %s: %w", host.Name, err)
	}
	if err != nil {
		return true, nil //nolint:nilerr // a Machine that is gone had the host
	}
	return util.IsControlPlaneMachine(machine), nil
}

// chooseHost records a suitable host and its address, and reserves it.
func (r *Reconciler) chooseHost(ctx context.Context, s *scope, own map[string]*infrav1.ElementalHost) (ctrl.Result, error) {
	// Nothing is chosen while a machine may hold a former choice.
	if err := r.unreserve(ctx, s); err != nil {
		if errors.Is(err, claim.ErrTaken) {
			return ctrl.Result{RequeueAfter: conflictDelay}, nil
		}
		return ctrl.Result{}, err
	}
	request, ok, err := r.request(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !ok {
		// A control plane without a template of ours may still have machines
		// of ours: of those that are up, one can be the endpoint.
		host, err := r.bootstrapped(ctx, s, own)
		if err != nil || host == nil {
			return ctrl.Result{RequeueAfter: controlPlaneDelay}, err
		}
		if err := r.record(ctx, s, host); err != nil {
			return ctrl.Result{}, err
		}
		s.endpoint = fromHost(host.Name)
		return ctrl.Result{}, r.publish(ctx, s)
	}
	key := client.ObjectKeyFromObject(s.infraCluster)
	r.sought.forget(key)
	hosts, err := r.namespaceHosts(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	policy := s.infraCluster.Spec.ControlPlaneEndpointPolicy
	addressed, unaddressed := addressed(policy, request, hosts)
	host := r.Nominations.PickReserved(r.Clock.Now(), request, addressed)
	if host == nil && request.Pick(addressed) != nil {
		s.endpoint = endpointState{reason: infrav1.NoHostReason, message: "All hosts for the control plane are just being claimed by others"}
		return ctrl.Result{RequeueAfter: nominatedDelay}, nil
	}
	if host == nil {
		s.endpoint = endpointState{reason: infrav1.NoHostReason, message: "No host for the control plane: " + request.Explain(hosts) + unaddressed}
		r.sought.keep(key, request)
		return ctrl.Result{}, nil
	}
	host = host.DeepCopy()
	if err := r.record(ctx, s, host); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.settle(ctx, s, host); err != nil {
		if errors.Is(err, claim.ErrTaken) {
			return ctrl.Result{RequeueAfter: conflictDelay}, nil
		}
		return ctrl.Result{}, err
	}
	r.Recorder.Eventf(s.infraCluster, host, corev1.EventTypeNormal, infrav1.HostReservedReason, "Reserve",
		"The control plane endpoint is %s, the address of host %s, which is reserved", s.infraCluster.Spec.ControlPlaneEndpoint.Host, host.Name)
	s.endpoint = fromHost(host.Name)
	return ctrl.Result{}, nil
}

func fromHost(name string) endpointState {
	return endpointState{ready: true, reason: infrav1.EndpointFromHostReason, message: "The address of host " + name}
}

// record writes the choice and its address to the ElementalCluster.
func (r *Reconciler) record(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	ctrl.LoggerFrom(ctx).Info("Choosing the endpoint's host", "ElementalHost", klog.KObj(host))
	chosenAt := r.Clock.Now()
	if s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef != nil {
		// Times of objects are whole seconds: a Machine made earlier in this one
		// must count as older than the exchange.
		chosenAt = chosenAt.Add(time.Second)
	}
	return r.patchSpec(ctx, s, "recording the choice of host "+host.Name, func(c *infrav1.ElementalCluster) {
		to, _ := address.OfPolicy(host, c.Spec.ControlPlaneEndpointPolicy)
		// Nothing had that address as endpoint yet, so its host is nobody's business.
		replaceEndpoint(&c.Spec, to, "", func(infrav1.FormerEndpoint) bool { return false })
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: host.Name, ChosenAt: metav1.NewTime(chosenAt)}
	})
}

// bootstrapped returns a connected host of the cluster, by name the first, that
// a control-plane Machine was bootstrapped on; nil when there is none.
func (r *Reconciler) bootstrapped(ctx context.Context, s *scope, own map[string]*infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		host := own[name]
		if is, _ := address.OfPolicy(host, s.infraCluster.Spec.ControlPlaneEndpointPolicy); is == "" ||
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

// settle makes a recorded choice effective. The order matters: once the host is
// reserved a machine may take it, so Machines whose bootstrap data names another
// endpoint must be on their way out before.
func (r *Reconciler) settle(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	if err := r.publish(ctx, s); err != nil {
		return err
	}
	if err := r.deleteOutdated(ctx, s); err != nil {
		return err
	}
	return claim.Reserve(ctx, r.Client, host, s.cluster.Name)
}

// addressed returns the hosts of which the endpoint's address is known, and says
// how many hosts that would suit have none.
func addressed(policy infrav1.ControlPlaneEndpointPolicy, request placement.Request, hosts []*infrav1.ElementalHost) (with []*infrav1.ElementalHost, why string) {
	var without int
	for _, host := range hosts {
		is, missing := address.OfPolicy(host, policy)
		if is != "" {
			with = append(with, host)
			continue
		}
		if _, suits := request.Suits(host); suits {
			without++
			why = missing
		}
	}
	if without == 0 {
		return with, ""
	}
	return with, fmt.Sprintf(", %d %s", without, why)
}

// unreserve gives back all reservations of the cluster.
func (r *Reconciler) unreserve(ctx context.Context, s *scope) error {
	name := clusterName(s)
	if name == "" {
		return nil
	}
	hosts, err := r.clusterHosts(ctx, s.infraCluster.Namespace, name)
	if err != nil {
		return err
	}
	// The newest choice may have been reserved a moment ago, unseen by the cache.
	if ref := s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef; ref != nil && hosts[ref.Name] == nil {
		live := &infrav1.ElementalHost{}
		err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.infraCluster.Namespace, Name: ref.Name}, live)
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
