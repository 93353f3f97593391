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
	// providerID is elemental://<namespace>/<host name>. The provider sets it once the
	// host is bootstrapped.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// hostSelector selects hosts by their labels and inventory. If absent, the machine
	// may use any host.
	// +optional
	HostSelector *HostSelector `json:"hostSelector,omitempty"`

	// hostName is the only ElementalHost that the machine may use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`

	// hostRef is the host that the provider has chosen. The provider sets it.
	// +optional
	HostRef *HostReference `json:"hostRef,omitempty"`

	// release says what happens to the host when the machine is deleted.
	// +optional
	Release ReleasePolicy `json:"release,omitempty,omitzero"`

	// programs: Keep has the bootstrap use the kubelet, kubeadm and container runtime that
	// the host has, and install the bundle of an ElementalKubernetesRelease only if one is
	// missing. Replace has it always install the bundle. Files of no package that are in
	// the way, and configuration in /etc, are set aside, and put back when the host is
	// reset; programs of a package are never changed. Defaults to Keep.
	// +optional
	Programs ProgramPolicy `json:"programs,omitempty"`

	// osImage is the image of Elemental OS that an update in place boots, as a source of the
	// elemental CLI: oci:…, docker:…, dir:… or file:…. A machine with it uses only hosts that
	// report an image of Elemental OS. Its Node begins with whichever image the host has.
	// +optional
	OSImage OSImage `json:"osImage,omitempty"`

	// ignoreFindings are findings of the preflight that do not keep the machine off a host,
	// because its bootstrap data mends them or its configuration allows them. A machine of
	// kubeadm gets no other host with a finding; machines of other bootstrap providers ignore
	// all findings.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	IgnoreFindings []FindingName `json:"ignoreFindings,omitempty"`
}

// ProgramPolicy is what a bootstrap does with the programs of Kubernetes that a host has.
// +kubebuilder:validation:Enum=Keep;Replace
type ProgramPolicy string

// Program policies.
const (
	ProgramsKeep    ProgramPolicy = "Keep"
	ProgramsReplace ProgramPolicy = "Replace"
)

// HostSelector selects ElementalHosts in the machine's namespace. A host must meet all
// given fields.
type HostSelector struct {
	// matchLabels are labels that the host must have.
	// +optional
	MatchLabels Labels `json:"matchLabels,omitempty"`

	// matchExpressions are label requirements that the host must meet, all of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchExpressions []HostSelectorRequirement `json:"matchExpressions,omitempty"`

	// expression is a CEL expression that must be true for the host, for example
	// host.inventory.cpu.cores >= 8. The variable host has the fields name, labels and
	// inventory, the last as in status.inventory of an ElementalHost. The expression is
	// validated at admission.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
}

// HostSelectorRequirement is a requirement on a label.
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) : (!has(self.values) || size(self.values) == 0)",message="In and NotIn need values; Exists and DoesNotExist take none"
type HostSelectorRequirement struct {
	// key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key,omitempty"`
	// operator is In, NotIn, Exists or DoesNotExist.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator,omitempty"`
	// values for the operators In and NotIn.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Values []string `json:"values,omitempty"`
}

// HostReference is the host that was chosen for a machine.
type HostReference struct {
	// name of the ElementalHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// claimID equals spec.claim.id of the host while the machine uses the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClaimID string `json:"claimID,omitempty"`
}

// ReleasePolicy says what happens to the host when its machine is deleted.
type ReleasePolicy struct {
	// policy: Reset resets the host, so that other machines can use it. Hold deletes the
	// machine and does not reset the host, until an administrator sets spec.claim.phase of
	// the host to Releasing. Cluster API still drains the Node and deletes it, unless the
	// Cluster or its control plane is being deleted. Defaults to Reset.
	// +optional
	// +kubebuilder:validation:Enum=Reset;Hold
	Policy ReleaseAction `json:"policy,omitempty"`

	// eraseDataDisks is the method to erase all disks after the reset, except those that
	// contain the operating system: Zero overwrites them, Discard makes the devices
	// discard their contents. If absent, they are not erased. The result is in
	// status.erasure of the host.
	// +optional
	EraseDataDisks EraseMethod `json:"eraseDataDisks,omitempty"`

	// disconnectedTimeoutSeconds is how long the deletion of a machine waits for a host
	// that is not connected, in seconds. After that the machine is deleted, and the host
	// is reset before anything else when it returns. The time counts only while another
	// host of the cluster is connected, or while the cluster is being deleted, so that a
	// site without network does not lose its machines. Defaults to 300.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	DisconnectedTimeoutSeconds *int32 `json:"disconnectedTimeoutSeconds,omitempty"`
}

// ReleaseAction is what happens to a host when its machine is deleted.
type ReleaseAction string

// Release actions.
const (
	ReleaseReset ReleaseAction = "Reset"
	ReleaseHold  ReleaseAction = "Hold"
)

// ElementalMachineStatus is the observed state of an ElementalMachine.
type ElementalMachineStatus struct {
	// initialization is the progress of provisioning, as defined by the InfraMachine
	// contract.
	// +optional
	Initialization ElementalMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// addresses of the host, with its host name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// failureDomain of the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// conditions of the machine: Ready, HostClaimed, Bootstrapped, KubernetesUpToDate,
	// Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalMachineInitializationStatus is part of the InfraMachine contract.
// +kubebuilder:validation:MinProperties=1
type ElementalMachineInitializationStatus struct {
	// provisioned is true once the host is bootstrapped. It never becomes false again.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// ElementalMachine is the infrastructure of a Machine: it claims an ElementalHost.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalmachines,scope=Namespaced,categories=cluster-api,shortName=em
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
func (m *ElementalMachine) SetConditions(list []metav1.Condition) { m.Status.Conditions = list }

// ElementalMachineList is a list of ElementalMachines.
// +kubebuilder:object:root=true
type ElementalMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalMachine `json:"items"`
}
