package placement

import (
	"slices"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Reasons why a running Node is not taken over, or why a machine may have no other host.
const (
	RunsNode    = "running a Node that belongs to another cluster"
	OtherRole   = "running a Node of another role"
	CannotAdopt = "with an agent that can't take over a Node"
	NotDeclared = "not declared for adoption by the cluster"
)

// Adoption says which running Nodes a machine may take over. A nil Adoption allows none.
type Adoption struct {
	// ClusterName and Role are those that a host must declare.
	ClusterName string
	Role        infrav1.AdoptedRole
	// Only: the machine may have no host without a Node.
	Only bool
}

// NewAdoption returns the Adoption for machines of the cluster; nil if it is not adopted. Before
// its control plane is known to Cluster API, a machine may have no other host: it would
// initialize a second control plane.
func NewAdoption(cluster *clusterv1.Cluster, infra *infrav1.ElementalCluster, isControlPlane bool) *Adoption {
	if cluster == nil || !infra.IsAdopted() {
		return nil
	}
	role := infrav1.AdoptedWorker
	if isControlPlane {
		role = infrav1.AdoptedControlPlane
	}
	return &Adoption{
		ClusterName: cluster.Name, Role: role,
		Only: !ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false),
	}
}

// Declares reports whether the host declares a Node that the machine may take over.
func (a *Adoption) Declares(host *infrav1.ElementalHost) bool {
	return a != nil && host.IsAdoptable() && host.Spec.Adoption.ClusterName == a.ClusterName && host.Spec.Adoption.Role == a.Role
}

// matches reports whether the machine may have the host, as far as its Node is concerned. If not,
// it returns the reason.
func (a *Adoption) matches(host *infrav1.ElementalHost) (reason string, ok bool) {
	if !host.IsAdoptable() {
		if a != nil && a.Only {
			return NotDeclared, false
		}
		return "", true
	}
	switch {
	case a == nil || host.Spec.Adoption.ClusterName != a.ClusterName:
		return RunsNode, false
	case host.Spec.Adoption.Role != a.Role:
		return OtherRole, false
	case !host.Supports(infrav1.OperationType(protocol.CapabilityAdopt)):
		return CannotAdopt, false
	default:
		return "", true
	}
}

// Among returns the constraints for a machine that has the choice of these free hosts: while one of
// them declares a Node for it, the machine gets no other host.
func (c Constraints) Among(hosts []*infrav1.ElementalHost) Constraints {
	if slices.ContainsFunc(hosts, c.Adoption.Declares) {
		only := *c.Adoption
		only.Only = true
		c.Adoption = &only
	}
	return c
}
