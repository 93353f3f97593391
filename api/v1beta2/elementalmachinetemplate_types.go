package v1beta2

import (
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

// ElementalMachineTemplate is what control planes and MachineDeployments make
// ElementalMachines from. Its spec is immutable: make another and refer to it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalmachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +required
	Spec ElementalMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// ElementalMachineTemplateList is a list of ElementalMachineTemplates.
// +kubebuilder:object:root=true
type ElementalMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalMachineTemplate `json:"items"`
}
