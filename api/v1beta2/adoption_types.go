package v1beta2

// HostAdoption says which Cluster the Node on a host belongs to.
type HostAdoption struct {
	// clusterName is the name of the Cluster, in the host's namespace. Its ElementalCluster has
	// origin: Adopted.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`
	// role of the Node in the cluster.
	// +required
	Role AdoptedRole `json:"role,omitempty"`
}

// AdoptedRole is the role of a Node that a machine takes over.
// +kubebuilder:validation:Enum=ControlPlane;Worker
type AdoptedRole string

// Adopted roles.
const (
	AdoptedControlPlane AdoptedRole = "ControlPlane"
	AdoptedWorker       AdoptedRole = "Worker"
)

// ClaimAdoption says what the Node on a claimed host must be. The agent compares it with the
// Node before the Node is taken over.
type ClaimAdoption struct {
	// authorityHash is the hash of the public key of the cluster's certificate authority, in
	// the format of kubeadm's --discovery-token-ca-cert-hash. The provider takes it from the
	// Secret <cluster>-ca.
	// +required
	// +kubebuilder:validation:MinLength=71
	// +kubebuilder:validation:MaxLength=71
	AuthorityHash string `json:"authorityHash,omitempty"`
	// endpoint of the cluster's API server, as host:port.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	Endpoint string `json:"endpoint,omitempty"`
	// version of Kubernetes of the Machine, such as v1.36.2; blank if the Machine has none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
}

// ClusterOrigin says where a cluster comes from.
// +kubebuilder:validation:Enum=Bootstrapped;Adopted
type ClusterOrigin string

// Cluster origins.
const (
	OriginBootstrapped ClusterOrigin = "Bootstrapped"
	OriginAdopted      ClusterOrigin = "Adopted"
)

// IsAdopted reports whether the cluster ran before Cluster API knew it. The ElementalCluster may
// be nil.
func (c *ElementalCluster) IsAdopted() bool { return c != nil && c.Spec.Origin == OriginAdopted }

// IsAdoptable reports whether the host runs a Node that no machine has taken over yet.
func (h *ElementalHost) IsAdoptable() bool {
	return h.Spec.Adoption != nil && (h.Spec.Claim == nil || h.Spec.Claim.Phase == ClaimReserved)
}
