package plan

import (
	"net"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Cluster is what is known of the cluster that a host is claimed for.
type Cluster struct {
	// Infra is the ElementalCluster. Nil: what the cluster is like can't be told for
	// now, for example while it is being moved or restored. A blank one stands for a
	// cluster of another provider, whose endpoint is none of our business.
	Infra *infrav1.ElementalCluster
	// KubernetesVersion is that of the host's Machine. It may be blank but for the
	// initial control-plane host of a cluster with a virtual IP address.
	KubernetesVersion string
	// OtherControlPlane: another control-plane host of the cluster is bootstrapped.
	// It may be left false where KubernetesVersion may be blank.
	OtherControlPlane bool
}

// EndpointType tells who provides the endpoint that the cluster has: External
// also where the user gave one.
func EndpointType(infra *infrav1.ElementalCluster) infrav1.EndpointType {
	policy := infra.Spec.ControlPlaneEndpointPolicy
	switch {
	case policy.Type == infrav1.EndpointTypeVIP:
		return infrav1.EndpointTypeVIP
	case policy.Type != infrav1.EndpointTypeExternal && policy.HostRef != nil:
		return infrav1.EndpointTypeHost
	default:
		return infrav1.EndpointTypeExternal
	}
}

// EndpointAddress is the cluster's endpoint as host:port; blank while there is
// none.
func EndpointAddress(infra *infrav1.ElementalCluster) string {
	endpoint := infra.Spec.ControlPlaneEndpoint
	if endpoint.Host == "" {
		return ""
	}
	return hostPort(endpoint.Host, endpoint.Port)
}

func hostPort(host string, port int32) string {
	if port == 0 {
		port = infrav1.DefaultControlPlanePort
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// endpointOf returns what the host does about its cluster's endpoint. A host that is
// not a Node yet gets it with its bootstrap data, and has nothing to follow; but
// it has to know a virtual address, to take it off should the bootstrap fail.
func endpointOf(host *infrav1.ElementalHost, cluster Cluster) *protocol.Endpoint {
	infra := cluster.Infra
	if infra == nil || infra.Spec.ControlPlaneEndpoint.Host == "" {
		return nil
	}
	claim, policy := host.Spec.Claim, infra.Spec.ControlPlaneEndpointPolicy
	out := &protocol.Endpoint{Host: infra.Spec.ControlPlaneEndpoint.Host, Port: infra.Spec.ControlPlaneEndpoint.Port}
	if out.Port == 0 {
		out.Port = infrav1.DefaultControlPlanePort
	}
	for _, former := range policy.FormerEndpoints {
		out.Former = append(out.Former, hostPort(former.Host, former.Port))
	}
	switch EndpointType(infra) {
	case infrav1.EndpointTypeVIP:
		out.VIP = true
		return out
	case infrav1.EndpointTypeHost:
		op := host.Operation(infrav1.OperationBootstrap, claim.ID)
		if op == nil || op.State != infrav1.OperationSucceeded {
			return nil
		}
		out.Probe = claim.Role.IsControlPlane()
		// Claims of an earlier version have no role.
		out.Publish = policy.HostRef.Name == host.Name && claim.Role != infrav1.RoleWorker
		if out.Publish {
			out.Since = policy.HostRef.ChosenAt.UTC()
		}
		out.Reject = rejected(host, infra)
		return out
	case infrav1.EndpointTypeExternal:
		return nil
	default:
		return nil
	}
}

// rejected is the former endpoint, host:port, that the host refuses to others. A
// host that was bootstrapped since is another Node: that its former self is not
// the endpoint any more is no reason to shut its API server off.
func rejected(host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) string {
	for _, former := range infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints {
		if former.HostName != host.Name || former.RejectedSince.IsZero() {
			continue
		}
		address := hostPort(former.Host, former.Port)
		if address == EndpointAddress(infra) || bootstrappedAfter(host, former.RejectedSince) {
			return ""
		}
		return address
	}
	return ""
}

// bootstrappedAfter goes by the manager's clock, unlike what the host says of its
// operations.
func bootstrappedAfter(host *infrav1.ElementalHost, t metav1.Time) bool {
	c := meta.FindStatusCondition(host.Status.Conditions, infrav1.BootstrappedCondition)
	return c != nil && c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(t.Time)
}

// filesOf returns the files that the host keeps for its cluster. Known is false
// where that can't be told: because the cluster is not known, or because
// kube-vip can't run on the host. Then nothing is put on the host and nothing
// taken away.
func filesOf(host *infrav1.ElementalHost, cluster Cluster) (files []protocol.File, known bool) {
	switch {
	case !host.Spec.Claim.Role.IsControlPlane():
		return nil, true
	case cluster.Infra == nil:
		return nil, false
	case EndpointType(cluster.Infra) != infrav1.EndpointTypeVIP:
		return []protocol.File{}, true
	}
	file, err := kubevip.File(cluster.Infra, host, kubevip.Facts{
		KubernetesVersion: cluster.KubernetesVersion, OtherControlPlane: cluster.OtherControlPlane,
	})
	if err != nil {
		// controller/cluster says so on the ElementalCluster.
		return nil, false
	}
	return []protocol.File{file}, true
}

// equipped tells whether the host can have the files that it needs before its
// bootstrap.
func equipped(host *infrav1.ElementalHost, cluster Cluster) bool {
	files, known := filesOf(host, cluster)
	return known && (len(files) == 0 || host.Supports(infrav1.OperationType(protocol.CapabilityFiles)))
}
