package tunnel

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
)

// Settings say how clients in the management cluster reach the gateway.
type Settings struct {
	Names endpointname.Names
	// Gateway is the DNS name of the gateway's Service.
	Gateway string
	// Port is the port of the gateway's Service. A name can't map ports, so endpoints have
	// it too.
	Port int32
}

// Reconciler provides endpoints that are names. Several goroutines may use it.
type Reconciler struct {
	// Client reads from the cache, which has the Services with the label
	// infrav1.EndpointServiceLabel only, and writes.
	Client client.Client
	// APIReader reads past the cache.
	APIReader client.Reader
	Recorder  events.EventRecorder
	Reader    scope.Reader
	Settings  Settings
}

// Outcome is the outcome of Reconcile.
type Outcome struct {
	scope.Endpoint

	// Tunnel is the condition TunnelReady; nil while there is no endpoint.
	Tunnel *metav1.Condition
}

// Reconcile records the endpoint and has its name lead to the gateway. The endpoint is
// ready then, before any host has a tunnel: without an endpoint Cluster API creates no
// Machines. A name or port that is not the cluster's own is reported and stays.
func (r *Reconciler) Reconcile(ctx context.Context, s *scope.Scope) (Outcome, error) {
	name := r.Settings.Names.Of(s.InfraCluster.Namespace, s.Cluster.Name)
	if problem := r.check(s, name); problem != nil {
		return Outcome{Endpoint: *problem}, nil
	}
	if r.Settings.Names.EndpointDomain == "" {
		problem, err := r.reconcileService(ctx, s, endpointname.Label(s.Cluster.Name))
		if err != nil || problem != nil {
			return outcome(problem), err
		}
	}
	if err := r.record(ctx, s, name); err != nil {
		return Outcome{}, err
	}
	ready, err := r.Condition(ctx, s)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{
		Endpoint: scope.Endpoint{Ready: true, Reason: infrav1.EndpointFromTunnelReason, Message: "A name that leads through the tunnels of hosts"},
		Tunnel:   ready,
	}, nil
}

// Condition returns the condition TunnelReady of a cluster whose hosts have tunnels.
func (r *Reconciler) Condition(ctx context.Context, s *scope.Scope) (*metav1.Condition, error) {
	hosts, err := r.Reader.ClaimedHosts(ctx, s.InfraCluster.Namespace, s.Cluster.Name)
	if err != nil {
		return nil, err
	}
	return new(condition(hosts, s.InfraCluster.EndpointType())), nil
}

func outcome(problem *scope.Endpoint) Outcome {
	if problem == nil {
		return Outcome{}
	}
	return Outcome{Endpoint: *problem}
}

// check compares what the user gave with the name and port that lead to the gateway. The
// name must be the cluster's own: with another one it would take part in another cluster's
// connections.
func (r *Reconciler) check(s *scope.Scope, name string) *scope.Endpoint {
	given, ofCluster := s.InfraCluster.Spec.ControlPlaneEndpoint, s.Cluster.Spec.ControlPlaneEndpoint
	if given.Host != "" && !strings.EqualFold(given.Host, name) {
		return &scope.Endpoint{Reason: infrav1.EndpointNameForeignReason, Message: fmt.Sprintf(
			"spec.controlPlaneEndpoint.host is %s, but with type Tunnel it has to be %s, or blank to be set", given.Host, name)}
	}
	if ofCluster.Host != "" && !strings.EqualFold(ofCluster.Host, name) {
		return &scope.Endpoint{Reason: infrav1.EndpointNameForeignReason, Message: fmt.Sprintf(
			"spec.controlPlaneEndpoint.host of the Cluster is %s, but with type Tunnel it has to be %s, or blank to be set", ofCluster.Host, name)}
	}
	for _, port := range []int32{given.Port, ofCluster.Port} {
		if port != 0 && port != r.Settings.Port {
			return &scope.Endpoint{Reason: infrav1.EndpointPortReason, Message: fmt.Sprintf(
				"spec.controlPlaneEndpoint.port is %d, but with type Tunnel it has to be the port of the gateway, %d, or blank to be set", port, r.Settings.Port)}
		}
	}
	return nil
}

// record writes the endpoint to spec, once.
func (r *Reconciler) record(ctx context.Context, s *scope.Scope, name string) error {
	recorded := s.InfraCluster.Spec.ControlPlaneEndpoint
	if recorded.Host != "" && recorded.Port != 0 {
		return nil
	}
	err := scope.PatchSpec(ctx, r.Client, s, "recording the endpoint", func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: name, Port: r.Settings.Port}
	})
	if err != nil {
		return err
	}
	r.Recorder.Eventf(s.InfraCluster, nil, corev1.EventTypeNormal, infrav1.EndpointFromTunnelReason, "Publish",
		"The control plane endpoint is %s:%d, which leads through the tunnels of hosts", name, r.Settings.Port)
	return nil
}
