package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalMachineTemplateSpec holds the template.
type ElementalMachineTemplateSpec struct {
	// template of the ElementalMachines to make.
	// +required
	Template ElementalMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// ElementalMachineTemplateResource is the ElementalMachine to make.
type ElementalMachineTemplateResource struct {
	// metadata of the ElementalMachines to make.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the ElementalMachines to make.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.hostName)",message="hostName pins one machine and can't be in a template; use hostSelector"
	// +kubebuilder:validation:XValidation:rule="!has(self.hostRef) && !has(self.providerID)",message="hostRef and providerID are set per machine and can't be in a template"
	Spec *ElementalMachineSpec `json:"spec,omitempty"`
}

// ElementalMachineTemplateStatus tells the cluster autoscaler what a machine
// would be, so that it can scale from zero (Cluster API's proposal "Opt-in
// Autoscaling from Zero").
type ElementalMachineTemplateStatus struct {
	// capacity that every free host has that matches the template: the least of
	// each resource, cpu and memory. Of all that match while none is free.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// nodeInfo of the Nodes that the machines would be.
	// +optional
	NodeInfo TemplateNodeInfo `json:"nodeInfo,omitempty,omitzero"`
	// hosts that match the template, by what they are.
	// +optional
	Hosts TemplateHosts `json:"hosts,omitempty,omitzero"`
}

// TemplateNodeInfo is what Nodes would be.
// +kubebuilder:validation:MinProperties=1
type TemplateNodeInfo struct {
	// architecture as the Node would report it, for example amd64. Blank while
	// hosts of several match.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Architecture string `json:"architecture,omitempty"`
	// operatingSystem is linux.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// TemplateHosts counts hosts that match a template.
// +kubebuilder:validation:MinProperties=1
type TemplateHosts struct {
	// matching hosts, whatever they are used for.
	// +optional
	Matching *int32 `json:"matching,omitempty"`
	// available are those that a machine could take now.
	// +optional
	Available *int32 `json:"available,omitempty"`
}

// ElementalMachineTemplate is what control planes and MachineDeployments make
// ElementalMachines from. Its spec is immutable: make another and refer to it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalmachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Matching",type="integer",JSONPath=".status.hosts.matching"
// +kubebuilder:printcolumn:name="Available",type="integer",JSONPath=".status.hosts.available"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +required
	Spec ElementalMachineTemplateSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// ElementalMachineTemplateList is a list of ElementalMachineTemplates.
// +kubebuilder:object:root=true
type ElementalMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalMachineTemplate `json:"items"`
}
