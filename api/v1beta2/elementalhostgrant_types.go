package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// HostGrantFinalizer is on an ElementalHostGrant until all its hosts have returned.
	HostGrantFinalizer = "infrastructure.cluster.x-k8s.io/elementalhostgrant"
	// GrantedHostFinalizer is on a granted host: whoever deletes it gives it back to its pool.
	GrantedHostFinalizer = "infrastructure.cluster.x-k8s.io/granted-host"
)

// ElementalHostGrantSpec says which hosts of this namespace, the pool, another namespace gets.
type ElementalHostGrantSpec struct {
	// namespace gets the hosts. It can't change.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namespace can't change: create another ElementalHostGrant"
	Namespace string `json:"namespace,omitempty"`

	// hosts that may be granted. If blank, all hosts of the pool may.
	// +optional
	Hosts HostGrantHosts `json:"hosts,omitempty,omitzero"`

	// count is how many hosts the namespace has by this grant at most.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Count *int32 `json:"count,omitempty"`
}

// HostGrantHosts selects hosts of the pool.
type HostGrantHosts struct {
	// selector selects hosts by the labels that they have in the pool. A granted host that no
	// longer matches goes back when it is free.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ElementalHostGrantStatus is the observed state of an ElementalHostGrant.
type ElementalHostGrantStatus struct {
	// granted is how many hosts the namespace has by this grant, the next two included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Granted *int32 `json:"granted,omitempty"`
	// inUse is how many of them have a claim.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InUse *int32 `json:"inUse,omitempty"`
	// returning is how many of them go back as soon as they are free, or are on their way.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Returning *int32 `json:"returning,omitempty"`

	// conditions of the grant: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalHostGrant moves free hosts of its namespace, the pool, into another namespace, and
// back when they are free again.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalhostgrants,scope=Namespaced,categories=cluster-api,shortName=ehg
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="To",type="string",JSONPath=".spec.namespace"
// +kubebuilder:printcolumn:name="Count",type="integer",JSONPath=".spec.count"
// +kubebuilder:printcolumn:name="Granted",type="integer",JSONPath=".status.granted"
// +kubebuilder:printcolumn:name="In use",type="integer",JSONPath=".status.inUse"
// +kubebuilder:printcolumn:name="Returning",type="integer",JSONPath=".status.returning"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Ready')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalHostGrant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +required
	Spec ElementalHostGrantSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalHostGrantStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (g *ElementalHostGrant) GetConditions() []metav1.Condition { return g.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (g *ElementalHostGrant) SetConditions(list []metav1.Condition) { g.Status.Conditions = list }

// ElementalHostGrantList is a list of ElementalHostGrants.
// +kubebuilder:object:root=true
type ElementalHostGrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalHostGrant `json:"items"`
}

// HostGrantPhase says which of a host's two objects has its key.
// +kubebuilder:validation:Enum=Moving;Granted;Returning
type HostGrantPhase string

// Phases of a granted host.
const (
	// HostGrantMoving: the pool's object has the key still. Nobody can claim the host.
	HostGrantMoving HostGrantPhase = "Moving"
	// HostGrantGranted: the object in the other namespace has the key.
	HostGrantGranted HostGrantPhase = "Granted"
	// HostGrantReturning: the pool's object has the key again, and the other one is being
	// deleted.
	HostGrantReturning HostGrantPhase = "Returning"
)

// HostGrantedTo says where a host of a pool is. The pool's object keeps the labels of the host.
type HostGrantedTo struct {
	// grantName is the name of the ElementalHostGrant, in the namespace of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	GrantName string `json:"grantName,omitempty"`
	// namespace that has the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the ElementalHost there.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// phase says which of the two objects has the host's key.
	// +required
	Phase HostGrantPhase `json:"phase,omitempty"`
}

// HostGrantedFrom says which pool a granted host comes from.
type HostGrantedFrom struct {
	// namespace of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the ElementalHost in the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// returning says that the host goes back as soon as it is free. Nobody can claim it.
	// +optional
	Returning *bool `json:"returning,omitempty"`
}

// IsHandedOver reports whether the host's key belongs to an object of another namespace.
func (h *ElementalHost) IsHandedOver() bool {
	return h.Spec.GrantedTo != nil && h.Spec.GrantedTo.Phase == HostGrantGranted
}

// IsGrantedTo reports whether the host of a pool names the other one as where it is.
func (h *ElementalHost) IsGrantedTo(other *ElementalHost) bool {
	to := h.Spec.GrantedTo
	return to != nil && to.Namespace == other.Namespace && to.Name == other.Name && other.IsGrantedFrom(types.NamespacedName{Namespace: h.Namespace, Name: h.Name})
}

// IsGrantedFrom reports whether the host names the key as its object in a pool.
func (h *ElementalHost) IsGrantedFrom(pool types.NamespacedName) bool {
	from := h.Spec.GrantedFrom
	return from != nil && from.Namespace == pool.Namespace && from.Name == pool.Name
}

// IsReturning reports whether a granted host goes back as soon as it is free: because of its
// grant, or because somebody has deleted it.
func (h *ElementalHost) IsReturning() bool {
	from := h.Spec.GrantedFrom
	return from != nil && (from.Returning != nil && *from.Returning || !h.DeletionTimestamp.IsZero())
}

// IsGone reports whether the host is being deleted and nothing is to be done with it any more. A
// granted host in use is reset first.
func (h *ElementalHost) IsGone() bool {
	return !h.DeletionTimestamp.IsZero() && (h.Spec.GrantedFrom == nil || h.Spec.Claim == nil)
}

// IsFixed reports whether the keys of the host can't change now, because the object that has
// them changes.
func (h *ElementalHost) IsFixed() bool {
	return h.Spec.GrantedTo != nil || h.Spec.GrantedFrom != nil && !h.DeletionTimestamp.IsZero() && h.Spec.Claim == nil
}
