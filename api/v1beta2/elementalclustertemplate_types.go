package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalClusterTemplateSpec is the desired state of an ElementalClusterTemplate.
type ElementalClusterTemplateSpec struct {
	// template of the ElementalClusters that Cluster API creates.
	// +required
	Template ElementalClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// ElementalClusterTemplateResource is the template of an ElementalCluster.
type ElementalClusterTemplateResource struct {
	// metadata of the ElementalClusters.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the ElementalClusters.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.controlPlaneEndpointPolicy) || !has(self.controlPlaneEndpointPolicy.hostRef)",message="hostRef is chosen per cluster and can't be in a template"
	// +kubebuilder:validation:XValidation:rule="!has(self.etcdSnapshotRecord)",message="etcdSnapshotRecord is written per cluster and can't be in a template"
	Spec *ElementalClusterSpec `json:"spec,omitempty"`
}

// ElementalClusterTemplate is the template from which a ClusterClass creates
// ElementalClusters.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalclustertemplates,scope=Namespaced,categories=cluster-api,shortName=ect
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +required
	Spec ElementalClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// ElementalClusterTemplateList is a list of ElementalClusterTemplates.
// +kubebuilder:object:root=true
type ElementalClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalClusterTemplate `json:"items"`
}
