package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalRemediationSpec says how an unhealthy Machine is remediated: its host is
// rebooted and, if that does not help, the Machine is replaced, which resets the host.
type ElementalRemediationSpec struct {
	// reboots is the number of reboots to try before the Machine is replaced. Defaults
	// to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Reboots *int32 `json:"reboots,omitempty"`

	// recoverySeconds is how long to wait for the Machine to become healthy after each
	// reboot, and for a disconnected host to return, in seconds. Defaults to 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	RecoverySeconds *int32 `json:"recoverySeconds,omitempty"`
}

// ElementalRemediationStatus is the observed state of an ElementalRemediation.
type ElementalRemediationStatus struct {
	// reboots is the number of reboots that were requested.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reboots int32 `json:"reboots,omitempty"`

	// waitingSince is when the current wait for the Machine to become healthy began.
	// +optional
	WaitingSince metav1.Time `json:"waitingSince,omitempty,omitzero"`

	// conditions of the remediation: Ready, Rebooted, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalRemediation remediates one unhealthy Machine, its owner. A MachineHealthCheck
// creates it from an ElementalRemediationTemplate and deletes it when the Machine is
// healthy.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalremediations,scope=Namespaced,categories=cluster-api,shortName=erem
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Reboots",type="integer",JSONPath=".status.reboots"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Ready')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalRemediation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +optional
	// +kubebuilder:default={}
	Spec ElementalRemediationSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalRemediationStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (r *ElementalRemediation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (r *ElementalRemediation) SetConditions(list []metav1.Condition) { r.Status.Conditions = list }

// ElementalRemediationList is a list of ElementalRemediations.
// +kubebuilder:object:root=true
type ElementalRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalRemediation `json:"items"`
}

// ElementalRemediationTemplateSpec is the desired state of an
// ElementalRemediationTemplate.
type ElementalRemediationTemplateSpec struct {
	// template of the ElementalRemediations that MachineHealthChecks create.
	// +required
	Template ElementalRemediationTemplateResource `json:"template,omitempty,omitzero"`
}

// ElementalRemediationTemplateResource is the template of an ElementalRemediation.
type ElementalRemediationTemplateResource struct {
	// metadata of the ElementalRemediations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec of the ElementalRemediations.
	// +required
	Spec *ElementalRemediationSpec `json:"spec,omitempty"`
}

// ElementalRemediationTemplate is the template from which MachineHealthChecks create
// ElementalRemediations.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalremediationtemplates,scope=Namespaced,categories=cluster-api,shortName=eremt
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalRemediationTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +required
	Spec ElementalRemediationTemplateSpec `json:"spec,omitempty,omitzero"`
}

// ElementalRemediationTemplateList is a list of ElementalRemediationTemplates.
// +kubebuilder:object:root=true
type ElementalRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalRemediationTemplate `json:"items"`
}
