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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// reconcileEndpoint sees to it that the cluster has an endpoint. Here types of
// endpoints part.
func (r *Reconciler) reconcileEndpoint(ctx context.Context, s *scope) (ctrl.Result, error) {
	spec := &s.infraCluster.Spec
	ref := spec.ControlPlaneEndpointPolicy.HostRef
	switch {
	case ref == nil && spec.ControlPlaneEndpoint.Host != "":
		return ctrl.Result{}, r.userEndpoint(ctx, s)
	case ref == nil && s.cluster.Spec.ControlPlaneEndpoint.IsValid():
		s.endpoint = endpointState{ready: true, reason: infrav1.EndpointFromUserReason, message: "The endpoint was set on the Cluster"}
		return ctrl.Result{}, nil
	case spec.ControlPlaneEndpointPolicy.Type == infrav1.EndpointTypeExternal:
		s.endpoint = endpointState{reason: infrav1.EndpointRequiredReason,
			message: "spec.controlPlaneEndpointPolicy.type is External: set spec.controlPlaneEndpoint.host"}
		return ctrl.Result{}, nil
	default:
		return r.hostEndpoint(ctx, s)
	}
}

// hostEndpoint provides an endpoint that is a host's address.
func (r *Reconciler) hostEndpoint(ctx context.Context, s *scope) (ctrl.Result, error) {
	hosts, err := r.clusterHosts(ctx, s.infraCluster.Namespace, s.cluster.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef != nil {
		keep, err := r.keepHost(ctx, s, hosts)
		if err != nil || keep {
			return ctrl.Result{}, err
		}
	}
	return r.chooseHost(ctx, s, hosts)
}

// userEndpoint leaves the user's endpoint alone, apart from a port that was not
// given: without one Cluster API would wait for ever.
func (r *Reconciler) userEndpoint(ctx context.Context, s *scope) error {
	if s.infraCluster.Spec.ControlPlaneEndpoint.Port == 0 {
		err := r.patchSpec(ctx, s, "setting the endpoint's port", func(c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpoint.Port = infrav1.DefaultControlPlanePort
		})
		if err != nil {
			return err
		}
	}
	s.endpoint = endpointState{ready: true, reason: infrav1.EndpointFromUserReason}
	return nil
}

// clusterHosts returns the hosts that are claimed for the cluster, by name.
func (r *Reconciler) clusterHosts(ctx context.Context, namespace, cluster string) (map[string]*infrav1.ElementalHost, error) {
	list := &infrav1.ElementalHostList{}
	err := r.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index.HostByCluster: cluster})
	if err != nil {
		return nil, fmt.Errorf("listing hosts of the cluster: %w", err)
	}
	hosts := make(map[string]*infrav1.ElementalHost, len(list.Items))
	for i := range list.Items {
		hosts[list.Items[i].Name] = &list.Items[i]
	}
	return hosts, nil
}

// keepHost reports whether the chosen host stays. It does once a machine has
// it or the control plane is up; before that a host that can't be used any more
// is exchanged.
func (r *Reconciler) keepHost(ctx context.Context, s *scope, hosts map[string]*infrav1.ElementalHost) (bool, error) {
	name := s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name
	host := hosts[name]
	if host == nil {
		// Not reserved yet, or the cache is behind.
		host = &infrav1.ElementalHost{}
		err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.infraCluster.Namespace, Name: name}, host)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading host %s: %w", name, err)
		}
		if err != nil {
			host = nil
		}
	}
	inUse, err := r.inUse(ctx, s, host)
	if err != nil {
		return false, err
	}
	if inUse {
		s.endpoint = fromHost(name)
		return true, r.publish(ctx, s)
	}
	if host == nil {
		return false, nil
	}
	request, ok, err := r.request(ctx, s)
	if err != nil {
		return false, err
	}
	if !ok {
		s.endpoint = fromHost(name)
		return true, r.publish(ctx, s)
	}
	if why, suits := request.Suits(host); !suits {
		ctrl.LoggerFrom(ctx).Info("Exchanging the endpoint's host", "ElementalHost", klog.KObj(host), "why", why)
		return false, nil
	}
	if address(host) != s.infraCluster.Spec.ControlPlaneEndpoint.Host {
		return false, nil
	}
	if err := r.settle(ctx, s, host); err != nil {
		if errors.Is(err, claim.ErrTaken) {
			return false, nil
		}
		return false, err
	}
	s.endpoint = fromHost(name)
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
		host, err := r.bootstrapped(ctx, own)
		if err != nil || host == nil {
			return ctrl.Result{RequeueAfter: controlPlaneDelay}, err
		}
		if err := r.record(ctx, s, host); err != nil {
			return ctrl.Result{}, err
		}
		s.endpoint = fromHost(host.Name)
		return ctrl.Result{}, r.publish(ctx, s)
	}
	hosts, err := r.namespaceHosts(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	host := pickAddressed(request, hosts)
	if host == nil {
		s.endpoint = endpointState{reason: infrav1.NoHostReason, message: "No host for the control plane: " + request.Explain(hosts)}
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
		"The control plane endpoint is %s, the address of host %s, which is reserved", address(host), host.Name)
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
		c.Spec.ControlPlaneEndpoint.Host = address(host)
		if c.Spec.ControlPlaneEndpoint.Port == 0 {
			c.Spec.ControlPlaneEndpoint.Port = infrav1.DefaultControlPlanePort
		}
		c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeHost
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: host.Name, ChosenAt: metav1.NewTime(chosenAt)}
	})
}

// bootstrapped returns a connected host of the cluster, by name the first, that
// a control-plane Machine was bootstrapped on; nil when there is none.
func (r *Reconciler) bootstrapped(ctx context.Context, own map[string]*infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		host := own[name]
		if address(host) == "" ||
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

// pickAddressed picks among the hosts whose address is known.
func pickAddressed(request placement.Request, hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	addressed := make([]*infrav1.ElementalHost, 0, len(hosts))
	for _, host := range hosts {
		if address(host) != "" {
			addressed = append(addressed, host)
		}
	}
	return request.Pick(addressed)
}

// address is the host's address in the endpoint: its first InternalIP, that of
// the default route's interface, which kubeadm puts into the serving
// certificate.
func address(host *infrav1.ElementalHost) string {
	for _, a := range host.Status.Addresses {
		if a.Type == clusterv1.MachineInternalIP {
			return a.Address
		}
	}
	return ""
}

func (r *Reconciler) namespaceHosts(ctx context.Context, s *scope) ([]*infrav1.ElementalHost, error) {
	list := &infrav1.ElementalHostList{}
	options := []client.ListOption{client.InNamespace(s.infraCluster.Namespace), client.UnsafeDisableDeepCopy}
	if r.WatchFilter != "" {
		// Of other hosts this manager would hear nothing.
		options = append(options, client.MatchingLabels{clusterv1.WatchLabel: r.WatchFilter})
	}
	if err := r.Client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	hosts := make([]*infrav1.ElementalHost, len(list.Items))
	for i := range list.Items {
		hosts[i] = &list.Items[i]
	}
	return hosts, nil
}

// unreserve gives back all reservations of the cluster.
func (r *Reconciler) unreserve(ctx context.Context, s *scope) error {
	name := s.infraCluster.Labels[clusterv1.ClusterNameLabel]
	if s.cluster != nil {
		name = s.cluster.Name
	}
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
