package v1beta2

import "maps"

const (
	// ClusterFinalizer lets the provider give reservations back.
	ClusterFinalizer = "infrastructure.cluster.x-k8s.io/elementalcluster"
	// MachineFinalizer holds an ElementalMachine until its host was reset.
	MachineFinalizer = "infrastructure.cluster.x-k8s.io/elementalmachine"

	// DefaultFailureDomainLabel is the host label that names a host's failure
	// domain where the cluster does not choose another.
	DefaultFailureDomainLabel = "topology.kubernetes.io/zone"
	// DefaultControlPlanePort is used where the endpoint has no port.
	DefaultControlPlanePort = 6443
	// DefaultFailoverAfterSeconds is how long an endpoint has to be unreachable
	// before it moves.
	DefaultFailoverAfterSeconds = 300
	// DefaultDisconnectedTimeoutSeconds is how long a silent host may hold a
	// deleted machine.
	DefaultDisconnectedTimeoutSeconds = 300

	// RegistrationLabel is put on hosts and token Secrets; its value is the
	// ElementalRegistration's name.
	RegistrationLabel = "infrastructure.cluster.x-k8s.io/elemental-registration"

	// PreventResetAnnotation on an ElementalHost keeps it from being reset while it
	// is there; on a Cluster or ElementalCluster it makes every release of the
	// cluster's machines a Hold. Its value is for people.
	PreventResetAnnotation = "infrastructure.cluster.x-k8s.io/prevent-reset"

	// MoveEndpointAnnotation on an ElementalCluster moves its endpoint to another
	// control-plane host once: the one that its value names, or any. The provider
	// removes it when the move has begun.
	MoveEndpointAnnotation = "infrastructure.cluster.x-k8s.io/move-endpoint"
	// EndpointHookAnnotation on a Machine holds its deletion, after the drain and
	// before the control plane gives the machine up, until the endpoint has left
	// the machine's host (Cluster API's pre-terminate hooks).
	EndpointHookAnnotation = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/elemental-endpoint"

	// QuarantinedForAnnotation on an ElementalHost names the claim whose failed
	// bootstrap last led to a quarantine, so that a quarantine that somebody ended
	// does not begin again.
	QuarantinedForAnnotation = "infrastructure.cluster.x-k8s.io/quarantined-for"

	// TokenSecretType is the type of registration token Secrets.
	TokenSecretType = "infrastructure.cluster.x-k8s.io/elemental-registration-token"
)

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue = string

// Labels are labels, checked at admission. Values are bounded by a type of their
// own, as a rule on values without a bound costs more than the API server
// permits; the type is an alias, so Labels can be assigned to and from the map
// that selectors and metadata take.
// +kubebuilder:object:generate=false
// +kubebuilder:validation:MaxProperties=64
// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be label keys"
type Labels map[string]LabelValue

// DeepCopy returns a copy; the generator can't write one for a map of an alias.
func (l Labels) DeepCopy() Labels { return maps.Clone(l) }

// DeepCopyInto copies the labels into out.
func (l Labels) DeepCopyInto(out *Labels) { *out = maps.Clone(l) }

// LocalReference names an object of the same namespace.
type LocalReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}
