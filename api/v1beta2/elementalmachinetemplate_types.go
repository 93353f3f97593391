package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalMachineTemplateSpec is the desired state of an ElementalMachineTemplate.
type ElementalMachineTemplateSpec struct {
	// template of the ElementalMachines that Cluster API creates.
	// +required
	Template ElementalMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// ElementalMachineTemplateResource is the template of an ElementalMachine.
type ElementalMachineTemplateResource struct {
	// metadata of the ElementalMachines.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the ElementalMachines.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.hostName)",message="hostName pins one machine and can't be in a template; use hostSelector"
	// +kubebuilder:validation:XValidation:rule="!has(self.hostRef) && !has(self.providerID)",message="hostRef and providerID are set per machine and can't be in a template"
	Spec *ElementalMachineSpec `json:"spec,omitempty"`
}

// ElementalMachineTemplateStatus describes the machines that the template would create,
// so that the cluster autoscaler can scale from zero (Cluster API's proposal "Opt-in
// Autoscaling from Zero").
type ElementalMachineTemplateStatus struct {
	// capacity (cpu and memory) that each machine would have at least: the minimum over
	// the available hosts that match the template. If none is available, the minimum
	// over all that match.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// nodeInfo describes the Nodes of the machines.
	// +optional
	NodeInfo TemplateNodeInfo `json:"nodeInfo,omitempty,omitzero"`
	// hosts counts the hosts that match the template.
	// +optional
	Hosts TemplateHosts `json:"hosts,omitempty,omitzero"`
}

// TemplateNodeInfo describes Nodes.
// +kubebuilder:validation:MinProperties=1
type TemplateNodeInfo struct {
	// architecture of the Nodes, for example amd64. It is blank if hosts of several
	// architectures match.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Architecture string `json:"architecture,omitempty"`
	// operatingSystem of the Nodes, which is linux.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// TemplateHosts counts the hosts that match a template.
// +kubebuilder:validation:MinProperties=1
type TemplateHosts struct {
	// matching is the number of hosts that match the template, whether they are free or
	// not. Hosts that are not approved, locked, fenced or being deleted do not count.
	// +optional
	Matching *int32 `json:"matching,omitempty"`
	// available is the number of hosts that match the template and that machines can
	// claim now.
	// +optional
	Available *int32 `json:"available,omitempty"`
}

// ElementalMachineTemplate is the template from which control planes and
// MachineDeployments create ElementalMachines. Its spec is immutable: to change it,
// create another template and refer to that.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalmachinetemplates,scope=Namespaced,categories=cluster-api,shortName=emt
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
