package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalClusterSpec is the desired state of an ElementalCluster.
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.type) && self.controlPlaneEndpointPolicy.type != 'Host' && has(self.controlPlaneEndpointPolicy.hostRef))",message="controlPlaneEndpointPolicy.hostRef belongs to type Host"
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.vip)) || (has(self.controlPlaneEndpointPolicy.type) && self.controlPlaneEndpointPolicy.type == 'VIP')",message="controlPlaneEndpointPolicy.vip needs type: VIP"
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.host)) || !has(self.controlPlaneEndpointPolicy.type) || self.controlPlaneEndpointPolicy.type == 'Host'",message="controlPlaneEndpointPolicy.host belongs to type Host"
// +kubebuilder:validation:XValidation:rule="!has(self.controlPlaneEndpointPolicy) || !has(self.controlPlaneEndpointPolicy.type) || self.controlPlaneEndpointPolicy.type != 'VIP' || has(self.controlPlaneEndpointPolicy.vip)",message="type VIP needs controlPlaneEndpointPolicy.vip with address or addressFromPool"
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.vip) && has(self.controlPlaneEndpoint) && has(self.controlPlaneEndpoint.host)) || size(self.controlPlaneEndpoint.host) == 0 || (isIP(self.controlPlaneEndpoint.host) && (!has(self.controlPlaneEndpointPolicy.vip.address) || ip(self.controlPlaneEndpoint.host) == ip(self.controlPlaneEndpointPolicy.vip.address)))",message="with type VIP leave controlPlaneEndpoint.host blank, or give the same address there"
type ElementalClusterSpec struct {
	// controlPlaneEndpoint is where the cluster's API server answers. Leave host
	// blank and the provider fills it with the address of a control-plane host.
	// A host that the user gives is never touched.
	// +optional
	ControlPlaneEndpoint ControlPlaneEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// controlPlaneEndpointPolicy says how a blank controlPlaneEndpoint is filled.
	// The provider writes it when it has filled one.
	// +optional
	ControlPlaneEndpointPolicy ControlPlaneEndpointPolicy `json:"controlPlaneEndpointPolicy,omitempty,omitzero"`

	// failureDomains says where hosts' failure domains come from.
	// +optional
	FailureDomains FailureDomainSource `json:"failureDomains,omitempty,omitzero"`
}

// ControlPlaneEndpoint is the address of an API server. Unlike Cluster API's own
// type it may be written with a blank host.
type ControlPlaneEndpoint struct {
	// host is an IP address or DNS name; blank to have it filled.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) || self.matches('^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$')",message="host must be an IP address or a DNS name, without scheme and port"
	Host string `json:"host,omitempty"`

	// port of the API server; 6443 when not given.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// FailureDomainSource says where the failure domains of hosts come from.
type FailureDomainSource struct {
	// hostLabel is the label of ElementalHosts whose value is the failure
	// domain; topology.kubernetes.io/zone when not given.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	HostLabel string `json:"hostLabel,omitempty"`
}

// ElementalClusterStatus is the observed state of an ElementalCluster.
type ElementalClusterStatus struct {
	// initialization tells Cluster API how far the infrastructure is.
	// +optional
	Initialization ElementalClusterInitializationStatus `json:"initialization,omitempty,omitzero"`

	// endpoint is what became of an endpoint that is a host's address.
	// +optional
	Endpoint *EndpointStatus `json:"endpoint,omitempty"`

	// failureDomains that Cluster API may spread machines over: until the control
	// plane is initialized only that of the reserved host for control planes.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// conditions of the cluster: Ready, ControlPlaneEndpointReady,
	// ControlPlaneEndpointFollowed, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalClusterInitializationStatus is part of the InfraCluster contract.
// +kubebuilder:validation:MinProperties=1
type ElementalClusterInitializationStatus struct {
	// provisioned is true once the endpoint is known. It never turns back.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// ElementalCluster is the infrastructure of a Cluster on elemental hosts.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".spec.controlPlaneEndpointPolicy.hostRef.name"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +optional
	Spec ElementalClusterSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (c *ElementalCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (c *ElementalCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// ElementalClusterList is a list of ElementalClusters.
// +kubebuilder:object:root=true
type ElementalClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalCluster `json:"items"`
}
