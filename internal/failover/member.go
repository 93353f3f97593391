package failover

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

// Member is a host that is claimed for the cluster.
type Member struct {
	Host *infrav1.ElementalHost
	// Machine that has the host; nil where it is not found.
	Machine *clusterv1.Machine
}

// Cluster is what is known of a cluster whose endpoint is a host's address, and
// in use.
type Cluster struct {
	// Infra has an endpoint, and names its host.
	Infra *infrav1.ElementalCluster
	// Cluster that it belongs to.
	Cluster *clusterv1.Cluster
	// Members in the order of their names.
	Members []Member
	// Holder is the endpoint's host, read past the cache if it is no member; nil
	// where it does not exist.
	Holder *infrav1.ElementalHost
	// Now is the manager's time.
	Now time.Time
}

// Endpoint is host:port of the endpoint.
func (c Cluster) Endpoint() string {
	e := c.Infra.Spec.ControlPlaneEndpoint
	return address.HostPort(e.Host, e.Port)
}

func (c Cluster) policy() infrav1.ControlPlaneEndpointPolicy {
	return c.Infra.Spec.ControlPlaneEndpointPolicy
}

func (c Cluster) holderName() string { return c.policy().HostRef.Name }

// Member returns the member with that host, or nil.
func (c Cluster) Member(host string) *Member {
	for i := range c.Members {
		if c.Members[i].Host.Name == host {
			return &c.Members[i]
		}
	}
	return nil
}

// Holds reports whether the member can be what the endpoint depends on.
func (m Member) Holds() bool { return m.Machine != nil && m.isControlPlane() }

// isControlPlane goes by the role that was recorded with the claim; claims
// without one are older than roles.
func (m Member) isControlPlane() bool {
	if role := m.Host.Spec.Claim.Role; role != "" {
		return role.IsControlPlane()
	}
	return m.Machine != nil && util.IsControlPlaneMachine(m.Machine)
}

// isWorker reports whether the host is known to be none of the control plane's.
func (m Member) isWorker() bool {
	known := m.Host.Spec.Claim.Role != "" || m.Machine != nil
	return known && !m.isControlPlane()
}

// isNode reports whether the host was bootstrapped for its claim and was not
// released since.
func (m Member) isNode() bool {
	claim := m.Host.Spec.Claim
	if claim.Phase != infrav1.ClaimBound && claim.Phase != infrav1.ClaimHeld {
		return false
	}
	op := m.Host.Operation(infrav1.OperationBootstrap, claim.ID)
	return op != nil && op.State == infrav1.OperationSucceeded
}

// isTrusted reports whether anything is heard from the host, and told to it.
func (m Member) isTrusted() bool {
	spec := m.Host.Spec
	return spec.Approval == infrav1.ApprovalApproved && spec.Lock == nil && spec.Fence == nil
}

func (m Member) isConnected() bool {
	c := m.Host.Status.Connection
	return m.isTrusted() && c != nil && c.State == infrav1.ConnectionConnected
}

// isLeaving reports whether the host is about to be reset, or kept from use.
func (m Member) isLeaving() bool {
	return m.Host.Spec.Claim.Phase != infrav1.ClaimBound || (m.Machine != nil && !m.Machine.DeletionTimestamp.IsZero())
}

// says returns what the host says of the endpoint; never nil.
func (m Member) says() *infrav1.HostEndpoint {
	if m.Host.Status.Endpoint == nil {
		return &infrav1.HostEndpoint{}
	}
	return m.Host.Status.Endpoint
}

func (m Member) apiServer() infrav1.ProbeResult {
	if s := m.says().APIServer; s != nil {
		return s.Result
	}
	return ""
}
