package cluster

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// reconcileEndpoint sees to it that the cluster has an endpoint. Here types of
// endpoints part.
func (r *Reconciler) reconcileEndpoint(ctx context.Context, s *scope) (ctrl.Result, error) {
	spec := &s.infraCluster.Spec
	ref := spec.ControlPlaneEndpointPolicy.HostRef
	switch {
	case spec.ControlPlaneEndpointPolicy.Type == infrav1.EndpointTypeVIP:
		return r.vipEndpoint(ctx, s)
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

// hostEndpoint provides an endpoint that is a host's address: one that is reserved
// until it is in use, and moves with the cluster from then on.
func (r *Reconciler) hostEndpoint(ctx context.Context, s *scope) (ctrl.Result, error) {
	hosts, err := r.clusterHosts(ctx, s.infraCluster.Namespace, s.cluster.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	ref := s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef
	if ref == nil {
		return r.chooseHost(ctx, s, hosts)
	}
	holder, err := r.holder(ctx, s, hosts)
	if err != nil {
		return ctrl.Result{}, err
	}
	inUse, err := r.inUse(ctx, s, holder)
	if err != nil {
		return ctrl.Result{}, err
	}
	if inUse {
		return r.attend(ctx, s, hosts, holder)
	}
	keep, err := r.keepHost(ctx, s, holder)
	if err != nil || keep {
		return ctrl.Result{}, err
	}
	return r.chooseHost(ctx, s, hosts)
}

// holder returns the endpoint's host, or nil if it does not exist.
func (r *Reconciler) holder(ctx context.Context, s *scope, hosts map[string]*infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	name := s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name
	if host := hosts[name]; host != nil {
		return host, nil
	}
	// Not reserved yet, not the cluster's any more, or the cache is behind.
	host := &infrav1.ElementalHost{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.infraCluster.Namespace, Name: name}, host)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading host %s: %w", name, err)
	}
	if err != nil {
		return nil, nil //nolint:nilerr // it does not exist
	}
	return host, nil
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
