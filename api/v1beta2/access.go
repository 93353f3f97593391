package v1beta2

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Bounds and defaults of direct access.
const (
	DefaultDirectAccessTTLSeconds = 12 * 60 * 60
	MinDirectAccessTTLSeconds     = 10 * 60
	MaxDirectAccessTTLSeconds     = 7 * 24 * 60 * 60
)

// Access is the access that users of the management cluster have to the workload cluster.
type Access struct {
	// bindings are the ClusterRoleBindings that the provider keeps in the workload cluster.
	// Bindings that are edited there are put back, and those that are removed here are
	// deleted there.
	// +optional
	// +listType=map
	// +listMapKey=clusterRole
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Bindings []AccessBinding `json:"bindings,omitempty"`

	// direct lets users have certificates with which they reach the API servers without
	// the management cluster. Nobody can have one unless it is set.
	// +optional
	Direct *DirectAccess `json:"direct,omitempty"`
}

// AccessBinding binds users and groups to a ClusterRole of the workload cluster.
// +kubebuilder:validation:XValidation:rule="has(self.users) || has(self.groups)",message="a binding needs users or groups"
type AccessBinding struct {
	// clusterRole is the name of a ClusterRole of the workload cluster, such as view.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^/%]+$`
	ClusterRole string `json:"clusterRole,omitempty"`

	// users are names of users of the management cluster. The ServiceAccount A of its
	// namespace N is management:system:serviceaccount:N:A.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.startsWith('system:') && !name.startsWith('kubeadm:'))",message="users that begin with system: or kubeadm: have no access through the gateway; a ServiceAccount of the management cluster is management:system:serviceaccount:NAMESPACE:NAME"
	Users []string `json:"users,omitempty"`

	// groups are names of groups of the management cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.startsWith('system:') && !name.startsWith('kubeadm:'))",message="groups that begin with system: or kubeadm: have no access through the gateway"
	Groups []string `json:"groups,omitempty"`
}

// DirectAccess says how users reach the API servers without the management cluster.
type DirectAccess struct {
	// ttlSeconds is how long a certificate of a user is valid. Nobody can revoke one before.
	// Defaults to 12 hours.
	// +optional
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=604800
	TTLSeconds int32 `json:"ttlSeconds,omitempty"`
}

// TTL returns how long a certificate of a user is valid.
func (d *DirectAccess) TTL() time.Duration {
	if d.TTLSeconds == 0 {
		return DefaultDirectAccessTTLSeconds * time.Second
	}
	return time.Duration(d.TTLSeconds) * time.Second
}

// AdmitsUsers reports whether users of the management cluster may have access to the
// workload cluster through the gateway.
func (c *ElementalCluster) AdmitsUsers() bool {
	return c.Spec.Access != nil || c.EndpointType() == EndpointTypeTunnel
}

// HasTunnels reports whether the cluster's control-plane hosts have tunnels. A cluster whose
// access was taken away keeps them until its bindings are deleted: AccessReady says so.
func (c *ElementalCluster) HasTunnels() bool {
	return c.AdmitsUsers() || meta.FindStatusCondition(c.Status.Conditions, AccessReadyCondition) != nil
}
