package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalRemediationSpec says how an unhealthy Machine is remedied: its host is
// rebooted, and if that does not help the Machine is replaced, which resets the
// host.
type ElementalRemediationSpec struct {
	// reboots to try before the Machine is replaced; 1 when not given.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Reboots *int32 `json:"reboots,omitempty"`

	// recoverySeconds is how long the Machine has to become healthy after each
	// reboot, and how long a host that is not connected may take to return; 300
	// when not given.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	RecoverySeconds *int32 `json:"recoverySeconds,omitempty"`
}

// ElementalRemediationStatus is how far a remediation is.
type ElementalRemediationStatus struct {
	// reboots that were asked for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reboots int32 `json:"reboots,omitempty"`

	// waitingSince is when the wait for the Machine to become healthy began.
	// +optional
	WaitingSince metav1.Time `json:"waitingSince,omitempty,omitzero"`

	// conditions of the remediation: Ready, Rebooted, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalRemediation remedies one unhealthy Machine, its owner. A
// MachineHealthCheck makes it from an ElementalRemediationTemplate and deletes it
// when the Machine is healthy.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalremediations,scope=Namespaced,categories=cluster-api
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
func (r *ElementalRemediation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// ElementalRemediationList is a list of ElementalRemediations.
// +kubebuilder:object:root=true
type ElementalRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalRemediation `json:"items"`
}

// ElementalRemediationTemplateSpec holds the template.
type ElementalRemediationTemplateSpec struct {
	// template of the ElementalRemediations to make.
	// +required
	Template ElementalRemediationTemplateResource `json:"template,omitempty,omitzero"`
}

// ElementalRemediationTemplateResource is the ElementalRemediation to make.
type ElementalRemediationTemplateResource struct {
	// metadata of the ElementalRemediations to make.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec of the ElementalRemediations to make.
	// +required
	Spec *ElementalRemediationSpec `json:"spec,omitempty"`
}

// ElementalRemediationTemplate is what MachineHealthChecks make
// ElementalRemediations from.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalremediationtemplates,scope=Namespaced,categories=cluster-api
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
