package v1beta2

// VIPMode is how kube-vip announces an address.
// +kubebuilder:validation:Enum=ARP;BGP
type VIPMode string

// VIP modes.
const (
	// VIPModeARP: the host that leads has the address on an interface and says so
	// by gratuitous ARP (NDP for IPv6). All hosts are in one layer 2 network.
	VIPModeARP VIPMode = "ARP"
	// VIPModeBGP: the host that leads announces the address to its peers.
	VIPModeBGP VIPMode = "BGP"
)

// Distribution is how Kubernetes is installed on hosts: it decides where static
// Pods and credentials are.
// +kubebuilder:validation:Enum=Kubeadm;K3s;RKE2
type Distribution string

// Distributions.
const (
	DistributionKubeadm Distribution = "Kubeadm"
	DistributionK3s     Distribution = "K3s"
	DistributionRKE2    Distribution = "RKE2"
)

// EndpointVIP is an address of its own for the endpoint. The endpoint's port is
// that of the API servers.
// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.addressFromPool)",message="give one of address and addressFromPool"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'BGP' || has(self.bgp)",message="mode BGP needs bgp"
// +kubebuilder:validation:XValidation:rule="!has(self.bgp) || (has(self.mode) && self.mode == 'BGP')",message="bgp is for mode BGP"
type EndpointVIP struct {
	// address is an IP address that nothing else uses.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="address is immutable: hosts and certificates carry it"
	Address string `json:"address,omitempty"`
	// addressFromPool has an address claimed from a pool of Cluster API's IPAM
	// contract. It is given back when the cluster goes.
	// +optional
	AddressFromPool *IPPoolReference `json:"addressFromPool,omitempty"`
	// mode is ARP when not given.
	// +optional
	Mode VIPMode `json:"mode,omitempty"`
	// interface that gets the address. When not given: the loopback in mode BGP;
	// else, for each host, the one whose subnet holds the address, or that of the
	// default route where none does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// image of kube-vip; the one that this provider was tested with when not given.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9][-a-zA-Z0-9._:/@]*$`
	Image string `json:"image,omitempty"`
	// distribution of Kubernetes. When not given it follows from the Cluster's
	// control plane.
	// +optional
	Distribution Distribution `json:"distribution,omitempty"`
	// bgp settings of mode BGP.
	// +optional
	BGP *VIPBGP `json:"bgp,omitempty"`
	// extraEnv are further settings of kube-vip by their names as environment
	// variables; they go before those that follow from the other fields.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	ExtraEnv []EnvVar `json:"extraEnv,omitempty"`
}

// IPPoolReference names a pool that an IPAM provider serves.
type IPPoolReference struct {
	// apiGroup of the pool.
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

// VIPBGP is how hosts speak BGP.
type VIPBGP struct {
	// localASN is the hosts' autonomous system.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	LocalASN int64 `json:"localASN,omitempty"`
	// peers that hosts announce the address to.
	// +required
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Peers []BGPPeer `json:"peers,omitempty"`
}

// BGPPeer is a router. It listens at port 179; kube-vip knows no other.
type BGPPeer struct {
	// address of the router.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`
	// asn is the router's autonomous system.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	ASN int64 `json:"asn,omitempty"`
	// multiHop is for a router that is not in the hosts' own network.
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
