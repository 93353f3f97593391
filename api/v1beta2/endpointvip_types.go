package v1beta2

// VIPMode says how kube-vip announces a virtual IP address.
// +kubebuilder:validation:Enum=ARP;BGP
type VIPMode string

// VIP modes.
const (
	// VIPModeARP: the leader has the address on an interface and announces it by
	// gratuitous ARP (NDP for IPv6). All control-plane hosts must be in one layer 2
	// network.
	VIPModeARP VIPMode = "ARP"
	// VIPModeBGP: the leader announces the address to its BGP peers.
	VIPModeBGP VIPMode = "BGP"
)

// Distribution is how Kubernetes is installed on hosts. It determines the paths of
// static Pods and credentials.
// +kubebuilder:validation:Enum=Kubeadm;K3s;RKE2
type Distribution string

// Distributions.
const (
	DistributionKubeadm Distribution = "Kubeadm"
	DistributionK3s     Distribution = "K3s"
	DistributionRKE2    Distribution = "RKE2"
)

// EndpointVIP is a virtual IP address as control plane endpoint. The port of the
// endpoint is that of the API servers.
// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.addressFromPool)",message="give one of address and addressFromPool"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'BGP' || has(self.bgp)",message="mode BGP needs bgp"
// +kubebuilder:validation:XValidation:rule="!has(self.bgp) || (has(self.mode) && self.mode == 'BGP')",message="bgp is for mode BGP"
type EndpointVIP struct {
	// address is an unused IP address. Set either address or addressFromPool.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="address is immutable: hosts and certificates carry it"
	Address string `json:"address,omitempty"`
	// addressFromPool refers to a pool from which the provider claims an address, by
	// Cluster API's IPAM contract. The address is released when the cluster is deleted.
	// +optional
	AddressFromPool *IPPoolReference `json:"addressFromPool,omitempty"`
	// mode is how kube-vip announces the address: ARP or BGP. Defaults to ARP.
	// +optional
	Mode VIPMode `json:"mode,omitempty"`
	// interface that gets the address. In mode BGP it defaults to the loopback
	// interface. In mode ARP it defaults on each host to the interface whose subnet
	// contains the address, or else to that of the default route.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// image of kube-vip. Defaults to the image that this version of the provider was
	// tested with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9][-a-zA-Z0-9._:/@]*$`
	Image string `json:"image,omitempty"`
	// distribution of Kubernetes. By default it is derived from the control plane of the
	// Cluster.
	// +optional
	Distribution Distribution `json:"distribution,omitempty"`
	// bgp configures mode BGP.
	// +optional
	BGP *VIPBGP `json:"bgp,omitempty"`
	// extraEnv are further settings of kube-vip, as environment variables. They take
	// precedence over the settings derived from the other fields.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	ExtraEnv []EnvVar `json:"extraEnv,omitempty"`
}

// IPPoolReference refers to a pool of an IPAM provider.
type IPPoolReference struct {
	// apiGroup of the pool's kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup,omitempty"`
	// kind of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// name of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// VIPBGP configures BGP on the hosts.
type VIPBGP struct {
	// localASN is the autonomous system number of the hosts.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	LocalASN int64 `json:"localASN,omitempty"`
	// peers are the routers to which hosts announce the address.
	// +required
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Peers []BGPPeer `json:"peers,omitempty"`
}

// BGPPeer is a router. kube-vip always connects to port 179.
type BGPPeer struct {
	// address of the router.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`
	// asn is the autonomous system number of the router.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	ASN int64 `json:"asn,omitempty"`
	// multiHop must be Enabled if the router is not in the hosts' own network. Defaults
	// to Disabled.
	// +optional
	MultiHop MultiHop `json:"multiHop,omitempty"`
}

// MultiHop says whether a BGP peer may be several hops away.
// +kubebuilder:validation:Enum=Enabled;Disabled
type MultiHop string

// Settings of MultiHop; Disabled when not given.
const (
	MultiHopEnabled  MultiHop = "Enabled"
	MultiHopDisabled MultiHop = "Disabled"
)

// EnvVar is an environment variable.
type EnvVar struct {
	// name of the variable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Name string `json:"name,omitempty"`
	// value of the variable.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}
