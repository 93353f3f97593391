package v1beta2

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalClusterSpec is the desired state of an ElementalCluster.
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.type) && self.controlPlaneEndpointPolicy.type != 'Host' && has(self.controlPlaneEndpointPolicy.hostRef))",message="controlPlaneEndpointPolicy.hostRef belongs to type Host"
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.vip)) || (has(self.controlPlaneEndpointPolicy.type) && self.controlPlaneEndpointPolicy.type == 'VIP')",message="controlPlaneEndpointPolicy.vip needs type: VIP"
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.host)) || !has(self.controlPlaneEndpointPolicy.type) || self.controlPlaneEndpointPolicy.type == 'Host'",message="controlPlaneEndpointPolicy.host belongs to type Host"
// +kubebuilder:validation:XValidation:rule="!has(self.controlPlaneEndpointPolicy) || !has(self.controlPlaneEndpointPolicy.type) || self.controlPlaneEndpointPolicy.type != 'VIP' || has(self.controlPlaneEndpointPolicy.vip)",message="type VIP needs controlPlaneEndpointPolicy.vip with address or addressFromPool"
// +kubebuilder:validation:XValidation:rule="!(has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.vip) && has(self.controlPlaneEndpoint) && has(self.controlPlaneEndpoint.host)) || size(self.controlPlaneEndpoint.host) == 0 || (isIP(self.controlPlaneEndpoint.host) && (!has(self.controlPlaneEndpointPolicy.vip.address) || ip(self.controlPlaneEndpoint.host) == ip(self.controlPlaneEndpointPolicy.vip.address)))",message="with type VIP leave controlPlaneEndpoint.host blank, or give the same address there"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.controlPlaneEndpoint) && has(oldSelf.controlPlaneEndpoint.host) && size(oldSelf.controlPlaneEndpoint.host) > 0) || (has(oldSelf.controlPlaneEndpointPolicy) && has(oldSelf.controlPlaneEndpointPolicy.type) && oldSelf.controlPlaneEndpointPolicy.type == 'Tunnel') == (has(self.controlPlaneEndpointPolicy) && has(self.controlPlaneEndpointPolicy.type) && self.controlPlaneEndpointPolicy.type == 'Tunnel')",message="the type can't change to or from Tunnel once there is an endpoint: the certificates and kubeconfigs of the cluster name it"
// +kubebuilder:validation:XValidation:rule="!has(self.origin) || self.origin != 'Adopted' || !has(self.controlPlaneEndpointPolicy) || !has(self.controlPlaneEndpointPolicy.type) || !(self.controlPlaneEndpointPolicy.type in ['VIP', 'Tunnel'])",message="a cluster with origin: Adopted keeps its endpoint: use the type Host or External"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.origin) == has(self.origin) && (!has(self.origin) || self.origin == oldSelf.origin)",message="origin can't change: make another ElementalCluster"
type ElementalClusterSpec struct {
	// origin says where the cluster comes from. Bootstrapped: the first control-plane Machine
	// initializes it. Adopted: it runs already, on hosts whose spec.adoption names the Cluster;
	// no Machine initializes a control plane, and Machines take over the Nodes of these hosts
	// first. It can't change. Defaults to Bootstrapped.
	// +optional
	Origin ClusterOrigin `json:"origin,omitempty"`

	// controlPlaneEndpoint is the address of the cluster's API server. If host is blank,
	// the provider sets it according to controlPlaneEndpointPolicy. The provider never
	// changes a host that a user has set.
	// +optional
	ControlPlaneEndpoint ControlPlaneEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// controlPlaneEndpointPolicy says how the provider sets a blank
	// controlPlaneEndpoint. The provider also records its choice here.
	// +optional
	ControlPlaneEndpointPolicy ControlPlaneEndpointPolicy `json:"controlPlaneEndpointPolicy,omitempty,omitzero"`

	// failureDomains says how the failure domains of hosts are determined.
	// +optional
	FailureDomains FailureDomainSource `json:"failureDomains,omitempty,omitzero"`

	// access is the access that users of the management cluster have to the workload
	// cluster through the gateway. It gives control-plane hosts tunnels, whatever the
	// type of the endpoint is.
	// +optional
	Access *Access `json:"access,omitempty"`

	// inPlace says whether a new version of Kubernetes is installed on the hosts that the
	// cluster has, instead of replacing its Machines.
	// +optional
	InPlace InPlace `json:"inPlace,omitempty,omitzero"`

	// etcdSnapshots makes control-plane hosts take snapshots of etcd and keep them. It
	// needs a control plane of kubeadm with etcd on its hosts. If it is absent, none are
	// taken; those that hosts have stay.
	// +optional
	EtcdSnapshots *EtcdSnapshots `json:"etcdSnapshots,omitempty"`

	// certificates says whether the provider renews the certificates of a control plane of one
	// host, which Cluster API can't replace without another host.
	// +optional
	Certificates CertificatePolicy `json:"certificates,omitempty,omitzero"`

	// etcdSnapshotRecord says which snapshot a host is asked for, and which was taken last.
	// The provider writes it.
	// +optional
	EtcdSnapshotRecord *EtcdSnapshotRecord `json:"etcdSnapshotRecord,omitempty"`
}

// InPlace says how Machines are changed without a replacement.
type InPlace struct {
	// mode: Off replaces Machines. Preferred upgrades a host in place if its agent can make
	// the whole change, and replaces the Machine otherwise. Required never answers Cluster API
	// that a Machine may be replaced for a change: a change that can't be made in place stops
	// the rollout, and the message names it. Cluster API asks only if its feature gates
	// RuntimeSDK and InPlaceUpdates are on, the provider's --in-place-updates is true and the
	// namespace has the label infrastructure.cluster.x-k8s.io/elemental-in-place; otherwise it
	// replaces Machines whatever the mode is. Defaults to Off.
	// +optional
	Mode InPlaceMode `json:"mode,omitempty"`
}

// InPlaceMode says whether changes are made in place.
// +kubebuilder:validation:Enum=Off;Preferred;Required
type InPlaceMode string

// In-place modes.
const (
	InPlaceOff       InPlaceMode = "Off"
	InPlacePreferred InPlaceMode = "Preferred"
	InPlaceRequired  InPlaceMode = "Required"
)

// CertificatePolicy says how the certificates that kubeadm has made for a control plane are
// renewed.
// +kubebuilder:validation:MinProperties=1
type CertificatePolicy struct {
	// renewal: SingleHost has the host of a control plane of one host renew its certificates in
	// place before they end. Several control-plane hosts are left to the rollout of their control
	// plane provider. Off renews nothing. Defaults to SingleHost.
	// +optional
	Renewal CertificateRenewalMode `json:"renewal,omitempty"`

	// renewBeforeDays is how many days before their end certificates are renewed. Defaults to 30.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=180
	RenewBeforeDays int32 `json:"renewBeforeDays,omitempty"`
}

// CertificateRenewalMode says whose certificates the provider renews.
// +kubebuilder:validation:Enum=SingleHost;Off
type CertificateRenewalMode string

// Modes of the renewal of certificates.
const (
	CertificateRenewalSingleHost CertificateRenewalMode = "SingleHost"
	CertificateRenewalOff        CertificateRenewalMode = "Off"
)

// RenewBefore returns how long before their end certificates are renewed.
func (p CertificatePolicy) RenewBefore() time.Duration {
	return time.Duration(cmp.Or(p.RenewBeforeDays, 30)) * 24 * time.Hour
}

// ControlPlaneEndpoint is the address of an API server. Unlike the type of Cluster API,
// its host may be blank.
type ControlPlaneEndpoint struct {
	// host is an IP address or a DNS name. If blank, the provider sets it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) || self.matches('^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$')",message="host must be an IP address or a DNS name, without scheme and port"
	Host string `json:"host,omitempty"`

	// port of the API server. Defaults to 6443.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// FailureDomainSource says how the failure domains of hosts are determined.
type FailureDomainSource struct {
	// hostLabel is the label of ElementalHosts whose value is the failure domain.
	// Defaults to topology.kubernetes.io/zone.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	HostLabel string `json:"hostLabel,omitempty"`
}

// ElementalClusterStatus is the observed state of an ElementalCluster.
type ElementalClusterStatus struct {
	// initialization is the progress of provisioning, as defined by the InfraCluster
	// contract.
	// +optional
	Initialization ElementalClusterInitializationStatus `json:"initialization,omitempty,omitzero"`

	// endpoint is the state of a control plane endpoint that is the address of a host.
	// +optional
	Endpoint *EndpointStatus `json:"endpoint,omitempty"`

	// virtualIP is the virtual IP address that the cluster's hosts may announce. The
	// provider sets it when nobody else uses the address. Of several clusters that want an
	// address, the one that has it here keeps it.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	VirtualIP string `json:"virtualIP,omitempty"`

	// failureDomains that Cluster API may spread machines over, at most 100. If the
	// endpoint is the address of a host, only the failure domain of the reserved host is
	// marked for control planes until the control plane is initialized.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// etcdSnapshots are the snapshots of etcd at the destination of spec.etcdSnapshots. It is
	// absent without a destination, and until it was read for the first time.
	// +optional
	EtcdSnapshots *UploadedEtcdSnapshots `json:"etcdSnapshots,omitempty"`

	// kubeconfigNotAfter is when the certificate in the kubeconfig of the cluster ends, which
	// Cluster API renews. It is absent if there is no such certificate.
	// +optional
	KubeconfigNotAfter metav1.Time `json:"kubeconfigNotAfter,omitempty,omitzero"`

	// conditions of the cluster: Ready, ControlPlaneEndpointReady,
	// ControlPlaneEndpointFollowed, TunnelReady, AccessReady, EtcdSnapshotsReady,
	// EtcdSnapshotsUploaded, CertificatesValid, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalClusterInitializationStatus is part of the InfraCluster contract.
// +kubebuilder:validation:MinProperties=1
type ElementalClusterInitializationStatus struct {
	// provisioned is true once the endpoint is known. It never becomes false again.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// ElementalCluster is the infrastructure of a Cluster whose machines are ElementalHosts.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalclusters,scope=Namespaced,categories=cluster-api,shortName=ec
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".spec.controlPlaneEndpointPolicy.hostRef.name"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="has(self.spec) || !has(oldSelf.spec) || !has(oldSelf.spec.controlPlaneEndpoint) || !has(oldSelf.spec.controlPlaneEndpoint.host) || size(oldSelf.spec.controlPlaneEndpoint.host) == 0 || !has(oldSelf.spec.controlPlaneEndpointPolicy) || !has(oldSelf.spec.controlPlaneEndpointPolicy.type) || oldSelf.spec.controlPlaneEndpointPolicy.type != 'Tunnel'",message="the type can't change to or from Tunnel once there is an endpoint: the certificates and kubeconfigs of the cluster name it"
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
func (c *ElementalCluster) SetConditions(list []metav1.Condition) { c.Status.Conditions = list }

// ElementalClusterList is a list of ElementalClusters.
// +kubebuilder:object:root=true
type ElementalClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalCluster `json:"items"`
}
