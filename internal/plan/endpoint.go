package plan

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Cluster describes the cluster that a host is claimed for.
type Cluster struct {
	// Infra is the ElementalCluster. It is nil while the cluster is unknown, for example
	// during a move or restore. A blank one stands for a cluster of another
	// infrastructure provider.
	Infra *infrav1.ElementalCluster
	// KubernetesVersion of the host's Machine. It and OtherControlPlane are needed only
	// for the initial control-plane host of a cluster with a virtual IP address.
	KubernetesVersion string
	// OtherControlPlane: another control-plane host of the cluster is bootstrapped.
	OtherControlPlane bool
	// Backends are the addresses, IP:port, of the cluster's API servers on other hosts.
	// They are needed only if the endpoint is of type Tunnel, and for an upgrade in place of
	// the endpoint host: see MayRedirect.
	Backends []string
	// Fallback: no control-plane host of the cluster has a tunnel, and the host is one of
	// the workers whose tunnels carry the cluster meanwhile.
	Fallback bool
	// ProviderIDs are those of all hosts that are claimed for the cluster, sorted. They are needed only
	// for a restore of etcd: the restored data may have Nodes of others.
	ProviderIDs []string
	// Images says which images of kube-vip the host may run.
	Images kubevip.ImagePolicy
	// Paused: the Cluster or the host's ElementalMachine is paused, so no operation
	// begins. An operation that has begun continues.
	Paused bool
}

// desiredEndpoint returns the endpoint that the host has to use, and its tasks: probe,
// publish, reject. A host that is not bootstrapped gets the endpoint with its bootstrap
// data instead. Two types are sent before: a virtual IP address, which the host removes if
// the bootstrap fails, and a local endpoint, which the bootstrap itself uses.
func desiredEndpoint(host *infrav1.ElementalHost, cluster Cluster) *protocol.Endpoint {
	infra := cluster.Infra
	if infra == nil || infra.Spec.ControlPlaneEndpoint.Host == "" {
		return nil
	}
	claim, policy := host.Spec.Claim, infra.Spec.ControlPlaneEndpointPolicy
	endpoint := infra.Spec.ControlPlaneEndpoint.WithDefaultPort()
	out := &protocol.Endpoint{Host: endpoint.Host, Port: endpoint.Port}
	for _, former := range policy.FormerEndpoints {
		out.Former = append(out.Former, former.HostPort())
	}
	switch infra.EndpointType() {
	case infrav1.EndpointTypeVIP:
		out.VIP = true
		return out
	case infrav1.EndpointTypeHost:
		if !host.IsBootstrapped() {
			return nil
		}
		out.Probe = claim.Role.IsControlPlane()
		// A claim of a version without roles may be one of the control plane.
		out.Publish = policy.HostRef.Name == host.Name && claim.Role != infrav1.RoleWorker
		if out.Publish {
			out.Since = policy.HostRef.ChosenAt.UTC()
		}
		out.Reject = rejectedEndpoint(host, infra)
		return out
	case infrav1.EndpointTypeTunnel:
		// The bootstrap already needs the endpoint.
		out.Local = &protocol.LocalEndpoint{Backends: cluster.Backends}
		out.Probe = host.IsBootstrapped() && claim.Role.IsControlPlane()
		return out
	case infrav1.EndpointTypeExternal:
		return nil
	default:
		return nil
	}
}

// rejectedEndpoint returns the former endpoint, as host:port, to which the host rejects
// connections; blank for none. A host that was bootstrapped again since then is another
// Node, whose API server must stay reachable.
func rejectedEndpoint(host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) string {
	for _, former := range infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints {
		if former.HostName != host.Name || former.RejectedSince.IsZero() {
			continue
		}
		address := former.HostPort()
		if address == infra.Spec.ControlPlaneEndpoint.HostPort() || bootstrappedAfter(host, former.RejectedSince) {
			return ""
		}
		return address
	}
	return ""
}

// bootstrappedAfter compares times of the manager's clock. Times of the host's
// operations are by the host's clock.
func bootstrappedAfter(host *infrav1.ElementalHost, t metav1.Time) bool {
	c := meta.FindStatusCondition(host.Status.Conditions, infrav1.BootstrappedCondition)
	return c != nil && c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(t.Time)
}

// desiredFiles returns the files that the host has to have for its cluster. known is
// false if the cluster is unknown, its virtual IP address may be that of another cluster,
// its image of kube-vip is not allowed, or kube-vip can't run on the host. The agent then
// neither writes nor removes files.
func desiredFiles(host *infrav1.ElementalHost, cluster Cluster) (files []protocol.File, known bool) {
	switch {
	case !host.Spec.Claim.Role.IsControlPlane():
		return nil, true
	case cluster.Infra == nil:
		return nil, false
	case cluster.Infra.EndpointType() != infrav1.EndpointTypeVIP:
		return []protocol.File{}, true
	case !cluster.Infra.HasVirtualIP():
		// Another cluster may have the address.
		return nil, false
	case cluster.Images.Refusal(cluster.Infra.Spec.ControlPlaneEndpointPolicy.VIP) != "":
		return nil, false
	}
	file, err := kubevip.File(cluster.Infra, host, kubevip.Facts{
		KubernetesVersion: cluster.KubernetesVersion, OtherControlPlane: cluster.OtherControlPlane,
	})
	if err != nil {
		// The ElementalCluster's condition says why.
		return nil, false
	}
	return []protocol.File{file}, true
}

// canServeEndpoint reports whether the host's agent can serve the endpoint itself, if it is
// of a type that needs it. The bootstrap uses the endpoint.
func canServeEndpoint(host *infrav1.ElementalHost, cluster Cluster) bool {
	return cluster.Infra == nil || cluster.Infra.EndpointType() != infrav1.EndpointTypeTunnel ||
		cluster.Infra.Spec.ControlPlaneEndpoint.Host != "" && host.Supports(infrav1.OperationType(protocol.CapabilityLocalEndpoint))
}

// canGetFiles reports whether the files that the host needs before its bootstrap are
// known, and its agent can write them.
func canGetFiles(host *infrav1.ElementalHost, cluster Cluster) bool {
	files, known := desiredFiles(host, cluster)
	return known && (len(files) == 0 || host.Supports(infrav1.OperationType(protocol.CapabilityFiles)))
}
