package v1beta2

const (
	// ClusterFinalizer lets the provider give reservations back.
	ClusterFinalizer = "elementalcluster.infrastructure.cluster.x-k8s.io"
	// MachineFinalizer holds an ElementalMachine until its host was reset.
	MachineFinalizer = "elementalmachine.infrastructure.cluster.x-k8s.io"

	// DefaultFailureDomainLabel is the host label that names a host's failure
	// domain where the cluster does not choose another.
	DefaultFailureDomainLabel = "topology.kubernetes.io/zone"
	// DefaultControlPlanePort is used where the endpoint has no port.
	DefaultControlPlanePort = 6443
	// DefaultDisconnectedTimeoutSeconds is how long a silent host may hold a
	// deleted machine.
	DefaultDisconnectedTimeoutSeconds = 300

	// RegistrationLabel is put on hosts and token Secrets; its value is the
	// ElementalRegistration's name.
	RegistrationLabel = "infrastructure.cluster.x-k8s.io/elemental-registration"

	// TokenSecretType is the type of registration token Secrets.
	TokenSecretType = "infrastructure.cluster.x-k8s.io/elemental-registration-token" //nolint:gosec // a type, not a credential
)

// LocalReference names an object of the same namespace.
type LocalReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}
