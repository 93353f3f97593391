package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalClusterSpec is the desired state of an ElementalCluster.
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.type) && self.controlPlaneEndpointPolicy.type == 'External' && has(self.controlPlaneEndpointPolicy.hostRef))",message="controlPlaneEndpointPolicy.hostRef belongs to type Host; with type External set controlPlaneEndpoint.host instead"
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

// EndpointType says who provides the control plane endpoint.
// +kubebuilder:validation:Enum=Host;External
type EndpointType string

// Endpoint types.
const (
	// EndpointTypeHost: the address of one of the cluster's control-plane hosts.
	EndpointTypeHost EndpointType = "Host"
	// EndpointTypeExternal: the user provides it; the provider waits for it.
	EndpointTypeExternal EndpointType = "External"
)

// ControlPlaneEndpointPolicy says how a blank endpoint is filled.
type ControlPlaneEndpointPolicy struct {
	// type defaults to Host when the endpoint's host is blank and to External
	// when the user gave one.
	// +optional
	Type EndpointType `json:"type,omitempty"`

	// hostRef names the ElementalHost whose address the endpoint is. The
	// provider writes it; blank means that the endpoint is the user's own.
	// +optional
	HostRef *EndpointHostReference `json:"hostRef,omitempty"`
}

// EndpointHostReference names the host whose address the endpoint is.
type EndpointHostReference struct {
	// name of the ElementalHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// chosenAt is when the provider chose it. Machines that are older and have
	// not yet been given a host may carry another endpoint in their bootstrap
	// data.
	// +required
	ChosenAt metav1.Time `json:"chosenAt,omitempty,omitzero"`
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

	// failureDomains that Cluster API may spread control planes over.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// conditions of the cluster: Ready, ControlPlaneEndpointReady, Paused.
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
