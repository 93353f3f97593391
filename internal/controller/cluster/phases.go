package cluster

import (
	"context"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/failuredomain"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/vip"
)

// reconcileEndpoint provides the control plane endpoint, by its type.
func (r *Reconciler) reconcileEndpoint(ctx context.Context, s *run) (err error) {
	kind := s.InfraCluster.EndpointType()
	if kind != infrav1.EndpointTypeVIP {
		s.InfraCluster.Status.VirtualIP = ""
	}
	switch {
	case kind == infrav1.EndpointTypeVIP:
		s.endpoint, err = r.vipEndpoint().Reconcile(ctx, &s.Scope)
		return err
	case kind == infrav1.EndpointTypeTunnel:
		out, err := r.tunnelEndpoint().Reconcile(ctx, &s.Scope)
		s.endpoint, s.tunnel = out.Endpoint, out.Tunnel
		return err
	case kind == infrav1.EndpointTypeHost:
		return r.reconcileHostEndpoint(ctx, s)
	case s.InfraCluster.Spec.ControlPlaneEndpoint.Host != "":
		return r.reconcileUserEndpoint(ctx, s)
	case s.Cluster.Spec.ControlPlaneEndpoint.IsValid():
		s.endpoint = scope.Endpoint{Ready: true, Reason: infrav1.EndpointFromUserReason, Message: "The endpoint was set on the Cluster"}
		return nil
	case kind == infrav1.EndpointTypeExternal:
		s.endpoint = scope.Endpoint{Reason: infrav1.EndpointRequiredReason,
			Message: "spec.controlPlaneEndpointPolicy.type is External: set spec.controlPlaneEndpoint.host"}
		return nil
	default:
		return r.reconcileHostEndpoint(ctx, s)
	}
}

// reconcileTunnels observes the tunnels of a cluster that has them for its users only.
func (r *Reconciler) reconcileTunnels(ctx context.Context, s *run) (err error) {
	if s.InfraCluster.EndpointType() == infrav1.EndpointTypeTunnel || !s.InfraCluster.HasTunnels() {
		return nil
	}
	s.tunnel, err = r.tunnelEndpoint().Condition(ctx, &s.Scope)
	return err
}

func (r *Reconciler) reconcileHostEndpoint(ctx context.Context, s *run) error {
	out, err := r.hostEndpoint().Reconcile(ctx, &s.Scope)
	s.endpoint, s.progress, s.hooks = out.Endpoint, out.Progress, out.Hooks
	return err
}

// reconcileUserEndpoint sets the port of the user's endpoint if it has none: Cluster API
// would wait for it forever.
func (r *Reconciler) reconcileUserEndpoint(ctx context.Context, s *run) error {
	if s.InfraCluster.Spec.ControlPlaneEndpoint.Port == 0 {
		err := scope.PatchSpec(ctx, r.Client, &s.Scope, "setting the endpoint's port", func(c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpoint = c.Spec.ControlPlaneEndpoint.WithDefaultPort()
		})
		if err != nil {
			return err
		}
	}
	s.endpoint = scope.Endpoint{Ready: true, Reason: infrav1.EndpointFromUserReason}
	return nil
}

// reconcileHooks adds and removes the endpoint's hook on Machines.
func (r *Reconciler) reconcileHooks(ctx context.Context, s *run) error {
	name := scope.ClusterName(&s.Scope)
	if name == "" {
		return nil
	}
	return endpoint.Hooks{Client: r.Client, Recorder: r.Recorder}.Apply(ctx, s.InfraCluster, name, s.hooks)
}

func (r *Reconciler) reconcileFailureDomains(ctx context.Context, s *run) error {
	found, err := failuredomain.Finder{Reader: r.reader(), Cache: &r.domains}.Find(ctx, &s.Scope)
	if err != nil {
		return err
	}
	s.InfraCluster.Status.FailureDomains = found
	return nil
}

func (r *Reconciler) reader() scope.Reader {
	return scope.Reader{Client: r.Client, Selectors: r.Selectors, WatchFilter: r.WatchFilter}
}

func (r *Reconciler) hostEndpoint() *endpoint.Reconciler {
	return &endpoint.Reconciler{
		Client: r.Client, APIReader: r.APIReader, Recorder: r.Recorder, Clock: r.Clock,
		Reader: r.reader(), Nominations: r.Nominations, Contacts: r.Contacts, Searches: &r.searches,
	}
}

func (r *Reconciler) vipEndpoint() *vip.Reconciler {
	return &vip.Reconciler{
		Client: r.Client, APIReader: r.APIReader, Recorder: r.Recorder, Reader: r.reader(), Images: r.Images, PublishLock: &r.publishLock,
	}
}

func (r *Reconciler) tunnelEndpoint() *tunnel.Reconciler {
	return &tunnel.Reconciler{Client: r.Client, APIReader: r.APIReader, Recorder: r.Recorder, Reader: r.reader(), Settings: r.Tunnels}
}
