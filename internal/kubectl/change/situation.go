package change

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/objects"
)

// pageSize is the number of hosts in memory at a time.
const pageSize = 500

// Situation is a host with what depends on it.
type Situation struct {
	Host *infrav1.ElementalHost
	// Machine that the host is claimed for, its Cluster, and the infrastructure of that; nil
	// if they do not exist.
	Machine *clusterv1.Machine
	Cluster *clusterv1.Cluster
	Infra   *infrav1.ElementalCluster
	// ControlPlane is the number of other control-plane hosts of the cluster, and Serving the
	// number of those whose API server is known to serve.
	ControlPlane, Serving int
}

// Host reads a host.
func Host(ctx context.Context, c client.Reader, namespace, name string) (*infrav1.ElementalHost, error) {
	host := &infrav1.ElementalHost{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, host)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no ElementalHost %s in namespace %s; name another, or give --namespace", name, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ElementalHost %s: %w", name, err)
	}
	return host, nil
}

// Look reads what depends on a host.
func Look(ctx context.Context, c client.Reader, host *infrav1.ElementalHost) (Situation, error) {
	s := Situation{Host: host}
	claim := host.Spec.Claim
	if claim == nil {
		return s, nil
	}
	var err error
	if s.Cluster, err = objects.Get(ctx, c, host.Namespace, claim.ClusterName, &clusterv1.Cluster{}); err != nil {
		return s, err
	}
	if s.Machine, err = objects.Get(ctx, c, host.Namespace, claim.MachineName, &clusterv1.Machine{}); err != nil {
		return s, err
	}
	if s.Cluster != nil {
		if s.Infra, err = objects.Get(ctx, c, host.Namespace, s.Cluster.Spec.InfrastructureRef.Name, &infrav1.ElementalCluster{}); err != nil {
			return s, err
		}
	}
	err = s.count(ctx, c)
	return s, err
}

// count counts the other control-plane hosts of the cluster.
func (s *Situation) count(ctx context.Context, c client.Reader) error {
	if !s.isControlPlane() {
		return nil
	}
	list := &infrav1.ElementalHostList{}
	for next := ""; ; next = list.Continue {
		if err := c.List(ctx, list, client.InNamespace(s.Host.Namespace), client.Limit(pageSize), client.Continue(next),
			client.MatchingLabels{clusterv1.ClusterNameLabel: s.Host.Spec.Claim.ClusterName}); err != nil {
			return fmt.Errorf("listing the hosts of the cluster: %w", err)
		}
		for i := range list.Items {
			host := &list.Items[i]
			claim := host.Spec.Claim
			if host.Name == s.Host.Name || claim == nil || claim.ClusterName != s.Host.Spec.Claim.ClusterName || !claim.Role.IsControlPlane() {
				continue
			}
			s.ControlPlane++
			if serves(host) {
				s.Serving++
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// isControlPlane goes by the role that the claim records. Claims of versions without roles go
// by the Machine.
func (s *Situation) isControlPlane() bool {
	claim := s.Host.Spec.Claim
	if claim == nil {
		return false
	}
	if claim.Role != "" {
		return claim.Role.IsControlPlane()
	}
	return s.Machine != nil && util.IsControlPlaneMachine(s.Machine)
}

// isEndpoint reports whether the address of the host is the endpoint of its cluster.
func (s *Situation) isEndpoint() bool {
	if s.Infra == nil {
		return false
	}
	ref := s.Infra.Spec.ControlPlaneEndpointPolicy.HostRef
	return ref != nil && ref.Name == s.Host.Name
}

// serves reports whether the host is a control-plane host whose API server serves, as far as
// the host says.
func serves(host *infrav1.ElementalHost) bool {
	spec := host.Spec
	trusted := spec.Approval == infrav1.ApprovalApproved && spec.Lock == nil && spec.Fence == nil
	if !trusted || spec.Claim.Phase != infrav1.ClaimBound || !host.IsConnected() || !host.IsBootstrapped() {
		return false
	}
	report := host.Status.Endpoint
	return report == nil || report.APIServer == nil || report.APIServer.Result == infrav1.ProbeReachable
}
