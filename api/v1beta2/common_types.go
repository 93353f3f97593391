package v1beta2

import "maps"

const (
	// ClusterFinalizer lets the provider remove reservations before an ElementalCluster
	// is deleted.
	ClusterFinalizer = "infrastructure.cluster.x-k8s.io/elementalcluster"
	// MachineFinalizer delays the deletion of an ElementalMachine until its host is
	// reset.
	MachineFinalizer = "infrastructure.cluster.x-k8s.io/elementalmachine"

	// DefaultFailureDomainLabel is the default of spec.failureDomains.hostLabel of an
	// ElementalCluster.
	DefaultFailureDomainLabel = "topology.kubernetes.io/zone"
	// DefaultControlPlanePort is the default port of a control plane endpoint.
	DefaultControlPlanePort = 6443
	// DefaultFailoverAfterSeconds is the default of failover.afterSeconds.
	DefaultFailoverAfterSeconds = 300
	// DefaultDisconnectedTimeoutSeconds is the default of
	// release.disconnectedTimeoutSeconds.
	DefaultDisconnectedTimeoutSeconds = 300

	// RegistrationLabel is a label of hosts and token Secrets. Its value is the name of
	// their ElementalRegistration.
	RegistrationLabel = "infrastructure.cluster.x-k8s.io/elemental-registration"

	// EndpointServiceLabel is a label of the Services that are the names of control plane
	// endpoints of type Tunnel. The manager caches no other Services. The value is blank.
	EndpointServiceLabel = "infrastructure.cluster.x-k8s.io/elemental-endpoint"

	// PreventResetAnnotation on an ElementalHost prevents its reset. On a Cluster or
	// ElementalCluster it holds the hosts of all Machines of the cluster that are
	// deleted, as release policy Hold does. The value is for people.
	PreventResetAnnotation = "infrastructure.cluster.x-k8s.io/prevent-reset"

	// RetryUpgradeAnnotation on an ElementalMachine repeats an upgrade of Kubernetes that
	// failed. The provider removes it. The value is for people.
	RetryUpgradeAnnotation = "infrastructure.cluster.x-k8s.io/retry-upgrade"
	// RestoreAnnotation on a Cluster says that the provider has paused it for a restore of
	// etcd. Its value is the name of the ElementalEtcdRestore.
	RestoreAnnotation = "infrastructure.cluster.x-k8s.io/etcd-restore"
	// HoldUpgradeLabel on a Cluster holds its upgrades of Kubernetes in place back: hosts
	// fetch bundles, and no upgrade begins. One that has begun goes on. The value is for
	// people.
	HoldUpgradeLabel = "infrastructure.cluster.x-k8s.io/hold-upgrade"
	// InPlaceLabel with the value "true" on a Namespace has Cluster API ask this provider
	// whether it can change Machines of the namespace in place.
	InPlaceLabel = "infrastructure.cluster.x-k8s.io/elemental-in-place"

	// MoveEndpointAnnotation on an ElementalCluster moves its control plane endpoint
	// once, to the control-plane host that the value names, or to any if the value is
	// blank. The provider removes it when the move has begun.
	MoveEndpointAnnotation = "infrastructure.cluster.x-k8s.io/move-endpoint"
	// EndpointHookAnnotation is a pre-terminate hook of Cluster API. It delays the
	// deletion of the Machine, after its Node is drained and before its etcd member is
	// removed, until the control plane endpoint has moved to another host.
	EndpointHookAnnotation = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/elemental-endpoint"

	// AccessBindingsAnnotation on an ElementalCluster says that its workload cluster may have
	// bindings of spec.access. Unlike status, it survives moves and restores. The provider
	// removes it when it has deleted the bindings. The value is blank.
	AccessBindingsAnnotation = "infrastructure.cluster.x-k8s.io/access-bindings"

	// QuarantinedForAnnotation on an ElementalHost is the ID of the claim whose failed
	// bootstrap began the last quarantine. A quarantine that a user ended does not begin
	// again for the same failure.
	QuarantinedForAnnotation = "infrastructure.cluster.x-k8s.io/quarantined-for"

	// TokenSecretType is the type of registration token Secrets.
	TokenSecretType = "infrastructure.cluster.x-k8s.io/elemental-registration-token"
)

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue = string

// Labels are labels that are validated at admission. The values have a type of their own
// with a maximum length, because the API server limits the estimated cost of validation
// rules. That type is an alias, so that Labels can be assigned to and from
// map[string]string.
// +kubebuilder:object:generate=false
// +kubebuilder:validation:MaxProperties=64
// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be label keys"
type Labels map[string]LabelValue

// DeepCopy returns a copy. controller-gen can't generate it for a map of an alias type.
func (l Labels) DeepCopy() Labels { return maps.Clone(l) }

// DeepCopyInto copies the labels into out.
func (l Labels) DeepCopyInto(out *Labels) { *out = maps.Clone(l) }

// LocalReference refers to an object in the same namespace.
type LocalReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}
