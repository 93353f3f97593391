package failover

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Member is a host that is claimed for the cluster.
type Member struct {
	Host *infrav1.ElementalHost
	// Machine that the host is claimed for; nil if it was not found.
	Machine *clusterv1.Machine
}

// Cluster is the input of all decisions: a cluster whose endpoint is a host's address
// and in use.
type Cluster struct {
	// Infra has an endpoint and a hostRef.
	Infra *infrav1.ElementalCluster
	// Cluster that owns Infra.
	Cluster *clusterv1.Cluster
	// Members sorted by the names of their hosts.
	Members []Member
	// EndpointHost is the host that hostRef names, read past the cache if it is no
	// member; nil if it does not exist.
	EndpointHost *infrav1.ElementalHost
	// Contacts are the contacts with the hosts of HostsToAsk, by name.
	Contacts map[string]Contact
	// Now is the manager's time.
	Now time.Time
}

// Endpoint returns the endpoint as host:port.
func (c Cluster) Endpoint() string { return c.Infra.Spec.ControlPlaneEndpoint.HostPort() }

func (c Cluster) policy() infrav1.ControlPlaneEndpointPolicy {
	return c.Infra.Spec.ControlPlaneEndpointPolicy
}

func (c Cluster) endpointHostName() string { return c.policy().HostRef.Name }

// Member returns the member with that host, or nil.
func (c Cluster) Member(host string) *Member {
	for i := range c.Members {
		if c.Members[i].Host.Name == host {
			return &c.Members[i]
		}
	}
	return nil
}

// HasControlPlaneMachine reports whether the member has a Machine of the control
// plane, which can carry the endpoint's hook.
func (m Member) HasControlPlaneMachine() bool { return m.Machine != nil && m.isControlPlane() }

// isControlPlane goes by the role that the claim records. Claims of versions without
// roles go by the Machine.
func (m Member) isControlPlane() bool {
	if role := m.Host.Spec.Claim.Role; role != "" {
		return role.IsControlPlane()
	}
	return m.Machine != nil && util.IsControlPlaneMachine(m.Machine)
}

// isWorker reports whether the host is known to be a worker.
func (m Member) isWorker() bool {
	known := m.Host.Spec.Claim.Role != "" || m.Machine != nil
	return known && !m.isControlPlane()
}

// isTrusted reports whether the manager accepts reports of the host and sends it a plan.
func (m Member) isTrusted() bool {
	spec := m.Host.Spec
	return spec.Approval == infrav1.ApprovalApproved && spec.Lock == nil && spec.Fence == nil
}

// isConnected reports whether the host is connected and its reports count.
func (m Member) isConnected() bool {
	return m.isTrusted() && m.Host.IsConnected()
}

// isDisconnected reports whether the host was connected and its agent is away. Reports
// of a host that is not trusted don't count, and neither does its absence.
func (m Member) isDisconnected() bool {
	c := m.Host.Status.Connection
	return m.isTrusted() && c != nil && c.State == infrav1.ConnectionDisconnected
}

// isExpectedToBeSilent reports whether the host may be silent by order: it reboots or
// upgrades as requested, or a person works on it.
func (m Member) isExpectedToBeSilent() bool {
	spec := m.Host.Spec
	return m.Host.InMaintenance() ||
		spec.Reboot != nil && m.isRunning(infrav1.OperationReboot, spec.Reboot.ID) ||
		spec.OSUpgrade != nil && m.isRunning(infrav1.OperationUpgrade, spec.OSUpgrade.ID)
}

// isUpgradingNode reports whether the host upgrades Kubernetes in place right now.
func (m Member) isUpgradingNode() bool {
	up := m.Host.Spec.NodeUpgrade
	return up != nil && m.isRunning(infrav1.OperationNodeUpgrade, up.ID)
}

func (m Member) isRunning(t infrav1.OperationType, id string) bool {
	op := m.Host.Operation(t, id)
	return op != nil && op.State == infrav1.OperationRunning
}

// isLeaving reports whether the host leaves the cluster: its Machine is being deleted, or
// its claim is not Bound.
func (m Member) isLeaving() bool {
	return m.Host.Spec.Claim.Phase != infrav1.ClaimBound || (m.Machine != nil && !m.Machine.DeletionTimestamp.IsZero())
}

// report returns the host's last report of the endpoint. It is never nil.
func (m Member) report() *infrav1.HostEndpoint {
	if m.Host.Status.Endpoint == nil {
		return &infrav1.HostEndpoint{}
	}
	return m.Host.Status.Endpoint
}

// apiServer returns the host's last report of its own API server; blank for none.
func (m Member) apiServer() infrav1.ProbeResult {
	if s := m.report().APIServer; s != nil {
		return s.Result
	}
	return ""
}
