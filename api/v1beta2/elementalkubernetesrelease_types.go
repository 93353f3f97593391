package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElementalKubernetesReleaseSpec pins the bundles of a version of Kubernetes.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a release is immutable: delete it and create it again"
type ElementalKubernetesReleaseSpec struct {
	// version of Kubernetes, such as v1.36.3, as in spec.version of a Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+([-+][0-9a-z.]+)?$`
	Version string `json:"version,omitempty"`

	// bundles of this version, one for each architecture. `bundle build` makes a bundle
	// and prints its entry.
	// +required
	// +listType=map
	// +listMapKey=architecture
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Bundles []KubernetesBundle `json:"bundles,omitempty"`
}

// KubernetesBundle is a bundle for hosts of one architecture.
type KubernetesBundle struct {
	// architecture of the hosts, as Go names it: amd64 or arm64.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Architecture string `json:"architecture,omitempty"`

	// sha256 of the bundle, in hex. Hosts use no bundle with another digest, wherever
	// they got it from.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`

	// sizeBytes is the size of the bundle, in bytes.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967296
	SizeBytes int64 `json:"sizeBytes,omitempty"`

	// sources are where hosts get the bundle from, tried in turn: "manager" is the
	// manager's folder of bundles, an http or https URL is a mirror, and file:/PATH is a
	// file on the host. Defaults to the manager.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.all(source, !source.matches('^https?://[^/?#]*@'))",message="a URL must not have a user name or password: everybody who may read hosts would see it"
	// +kubebuilder:validation:items:Pattern=`^(manager|https?://[^\s]+|file:/[^\s]+)$`
	Sources []string `json:"sources,omitempty"`
}

// SourceManager is the entry of KubernetesBundle.Sources that stands for the manager.
const SourceManager = "manager"

// ElementalKubernetesReleaseStatus is the observed state of an ElementalKubernetesRelease.
type ElementalKubernetesReleaseStatus struct {
	// conditions of the release: BundlesReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalKubernetesRelease pins what hosts of its namespace install for a version of
// Kubernetes. Its name is the version, with "-" instead of "+". Whoever may write releases
// decides what runs as root on hosts.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalkubernetesreleases,scope=Namespaced,categories=cluster-api,shortName=ekr
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version"
// +kubebuilder:printcolumn:name="Architectures",type="string",JSONPath=".spec.bundles[*].architecture"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='BundlesReady')].status"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='BundlesReady')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.version.replace('+', '-')",message="the name must be the version, with - instead of +"
type ElementalKubernetesRelease struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +required
	Spec ElementalKubernetesReleaseSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalKubernetesReleaseStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (r *ElementalKubernetesRelease) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (r *ElementalKubernetesRelease) SetConditions(list []metav1.Condition) {
	r.Status.Conditions = list
}

// ElementalKubernetesReleaseList is a list of ElementalKubernetesReleases.
// +kubebuilder:object:root=true
type ElementalKubernetesReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalKubernetesRelease `json:"items"`
}
