package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalMachineSpec is the desired state of an ElementalMachine.
// +kubebuilder:validation:XValidation:rule="!(has(self.hostName) && has(self.hostSelector))",message="hostName pins one host, so hostSelector can't be given as well"
// +kubebuilder:validation:XValidation:rule="has(self.hostName) == has(oldSelf.hostName) && (!has(self.hostName) || self.hostName == oldSelf.hostName)",message="hostName is immutable; delete the Machine to use another host"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID is immutable once set"
type ElementalMachineSpec struct {
	// providerID is elemental://<namespace>/<host name> once the host is a Node.
	// The provider writes it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// hostSelector chooses hosts by their labels and inventory. Empty: any host.
	// +optional
	HostSelector *HostSelector `json:"hostSelector,omitempty"`

	// hostName pins the machine to this ElementalHost.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`

	// hostRef is the provider's choice of host.
	// +optional
	HostRef *HostReference `json:"hostRef,omitempty"`

	// release says what becomes of the host when the machine is deleted.
	// +optional
	Release ReleasePolicy `json:"release,omitempty,omitzero"`
}

// HostSelector selects ElementalHosts of the machine's namespace.
type HostSelector struct {
	// matchLabels that the host must have.
	// +optional
	MatchLabels Labels `json:"matchLabels,omitempty"`

	// matchExpressions that must all hold.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchExpressions []HostSelectorRequirement `json:"matchExpressions,omitempty"`

	// expression is a CEL expression over the host that must be true, for example
	// host.inventory.cpu.cores >= 8. The variable host has name, labels and
	// inventory, the latter as in an ElementalHost's status. It is checked at
	// admission.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
}

// HostSelectorRequirement is a label selector requirement, checked at admission.
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) : (!has(self.values) || size(self.values) == 0)",message="In and NotIn need values; Exists and DoesNotExist take none"
type HostSelectorRequirement struct {
	// key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key,omitempty"`
	// operator relates key and values.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator,omitempty"`
	// values of In and NotIn.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Values []string `json:"values,omitempty"`
}

// HostReference is the choice of a host for one claim.
type HostReference struct {
	// name of the ElementalHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// claimID equals the host's spec.claim.id while the host is this machine's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClaimID string `json:"claimID,omitempty"`
}

// ReleasePolicy says what becomes of a host when its machine is deleted.
type ReleasePolicy struct {
	// policy: Reset brings the host back to what it was before. Hold lets the
	// machine go and leaves the host as it is, workload included, until an
	// administrator sets the host's spec.claim.phase to Releasing. Reset when not
	// given.
	// +optional
	// +kubebuilder:validation:Enum=Reset;Hold
	Policy ReleaseAction `json:"policy,omitempty"`

	// eraseDataDisks erases all disks but those that hold the operating system,
	// after the reset. The host's status.erasure reports it.
	// +optional
	EraseDataDisks EraseMethod `json:"eraseDataDisks,omitempty"`

	// disconnectedTimeoutSeconds is how long a host that is not connected may
	// hold a deleted machine; 300 when not given. It is reset before anything
	// else when it returns. The time runs only while another host of the same
	// cluster is connected or the cluster is being deleted: a site gone dark
	// loses nothing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	DisconnectedTimeoutSeconds *int32 `json:"disconnectedTimeoutSeconds,omitempty"`
}

// ReleaseAction is what becomes of a host.
type ReleaseAction string

// Release actions.
const (
	ReleaseReset ReleaseAction = "Reset"
	ReleaseHold  ReleaseAction = "Hold"
)

// ElementalMachineStatus is the observed state of an ElementalMachine.
type ElementalMachineStatus struct {
	// initialization tells Cluster API how far the machine is.
	// +optional
	Initialization ElementalMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// addresses of the host.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// failureDomain that the host is in.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// conditions of the machine: Ready, HostClaimed, Bootstrapped, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalMachineInitializationStatus is part of the InfraMachine contract.
// +kubebuilder:validation:MinProperties=1
type ElementalMachineInitializationStatus struct {
	// provisioned is true once the host is bootstrapped. It never turns back.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// ElementalMachine is a Machine on an ElementalHost.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalmachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".spec.hostRef.name"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Ready')].message"
// +kubebuilder:printcolumn:name="ProviderID",type="string",priority=1,JSONPath=".spec.providerID"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +optional
	Spec ElementalMachineSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (m *ElementalMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (m *ElementalMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// ElementalMachineList is a list of ElementalMachines.
// +kubebuilder:object:root=true
type ElementalMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalMachine `json:"items"`
}
