package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointType says who provides the control plane endpoint.
// +kubebuilder:validation:Enum=Host;VIP;External
type EndpointType string

// Endpoint types.
const (
	// EndpointTypeHost: the address of one of the cluster's control-plane hosts.
	EndpointTypeHost EndpointType = "Host"
	// EndpointTypeVIP: an address of its own, which kube-vip on the control-plane
	// hosts takes care of.
	EndpointTypeVIP EndpointType = "VIP"
	// EndpointTypeExternal: the user provides it; the provider waits for it.
	EndpointTypeExternal EndpointType = "External"
)

// ControlPlaneEndpointPolicy says how a blank endpoint is filled.
type ControlPlaneEndpointPolicy struct {
	// type defaults to Host when the endpoint's host is blank and to External
	// when the user gave one.
	// +optional
	Type EndpointType `json:"type,omitempty"`

	// host says, for type Host, which address of a host is the endpoint and when
	// the endpoint moves to another host.
	// +optional
	Host *EndpointHostPolicy `json:"host,omitempty"`

	// vip says, for type VIP, which address it is and how kube-vip announces it.
	// +optional
	VIP *EndpointVIP `json:"vip,omitempty"`

	// hostRef names the ElementalHost whose address the endpoint is. The
	// provider writes it; blank means that the endpoint is the user's own.
	// +optional
	HostRef *EndpointHostReference `json:"hostRef,omitempty"`

	// formerEndpoints are those that the endpoint moved away from, the newest
	// first. The provider writes them: hosts that still use one follow, also after
	// a long time offline.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	FormerEndpoints []FormerEndpoint `json:"formerEndpoints,omitempty"`
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

// FormerEndpoint is an endpoint that is none any more.
type FormerEndpoint struct {
	// host is the address that it had.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host,omitempty"`
	// port that it had.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// hostName is the ElementalHost that had the address.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// rejectedSince is when that host was told to refuse connections to this
	// address from elsewhere, so that clients which hold on to it let go. Absent:
	// it was not.
	// +optional
	RejectedSince metav1.Time `json:"rejectedSince,omitempty,omitzero"`
}

// EndpointHostPolicy is how an endpoint that is a host's address is chosen.
type EndpointHostPolicy struct {
	// address says which of a host's addresses is the endpoint; the InternalIP of
	// the default route's interface when not given.
	// +optional
	Address HostAddressRule `json:"address,omitempty,omitzero"`
	// failover says when the endpoint leaves a host that is dead.
	// +optional
	Failover EndpointFailover `json:"failover,omitempty,omitzero"`
}

// HostAddressType is a type of address of Cluster API's MachineAddress.
// +kubebuilder:validation:Enum=InternalIP;ExternalIP;Hostname
type HostAddressType string

// IPFamily is a version of the Internet Protocol.
// +kubebuilder:validation:Enum=IPv4;IPv6
type IPFamily string

// IP families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// HostAddressRule says which address of a host is meant: the first that all
// given fields fit.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'Hostname' || !(has(self.interface) || has(self.cidr) || has(self.family))",message="interface, cidr and family are for IP addresses, not for type Hostname"
// +kubebuilder:validation:XValidation:rule="!has(self.cidr) || isCIDR(self.cidr)",message="cidr must be a network like 10.0.0.0/8 or 2001:db8::/32"
type HostAddressRule struct {
	// type of the address; InternalIP when not given.
	// +optional
	Type HostAddressType `json:"type,omitempty"`
	// interface that has the address.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// cidr that the address is in.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CIDR string `json:"cidr,omitempty"`
	// family of the address.
	// +optional
	Family IPFamily `json:"family,omitempty"`
}

// FailoverPolicy says who decides on a failover.
// +kubebuilder:validation:Enum=Automatic;Manual
type FailoverPolicy string

// Failover policies.
const (
	// FailoverAutomatic: the endpoint moves by itself.
	FailoverAutomatic FailoverPolicy = "Automatic"
	// FailoverManual: it moves when the annotation MoveEndpointAnnotation asks for
	// it, and when its Machine is deleted.
	FailoverManual FailoverPolicy = "Manual"
)

// EndpointFailover says when the endpoint leaves a host that is dead.
// +kubebuilder:validation:MinProperties=1
type EndpointFailover struct {
	// policy is Automatic when not given.
	// +optional
	Policy FailoverPolicy `json:"policy,omitempty"`
	// afterSeconds is how long the endpoint has to be unreachable from the other
	// control-plane hosts; 300 when not given.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	AfterSeconds *int32 `json:"afterSeconds,omitempty"`
}

// EndpointStatus is what became of an endpoint that is a host's address.
type EndpointStatus struct {
	// since is when the endpoint became what it is.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// moves counts how often it moved from one address to another.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Moves int64 `json:"moves,omitempty"`
	// unreachableSince is since when other control-plane hosts have not reached
	// the endpoint, as the manager heard of it. Absent: they do, or none is there to say.
	// +optional
	UnreachableSince metav1.Time `json:"unreachableSince,omitempty,omitzero"`
	// lastMove is the move that is under way or was the last.
	// +optional
	LastMove *EndpointMove `json:"lastMove,omitempty"`
}

// EndpointMoveCause is why an endpoint moved.
// +kubebuilder:validation:Enum=HostDead;MachineDeleted;AddressChanged;Requested
type EndpointMoveCause string

// Causes of moves.
const (
	MoveHostDead       EndpointMoveCause = "HostDead"
	MoveMachineDeleted EndpointMoveCause = "MachineDeleted"
	MoveAddressChanged EndpointMoveCause = "AddressChanged"
	MoveRequested      EndpointMoveCause = "Requested"
)

// EndpointMove is a move of the endpoint.
type EndpointMove struct {
	// from is the address that it left.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	From string `json:"from,omitempty"`
	// to is the address that it took.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	To string `json:"to,omitempty"`
	// cause of the move.
	// +required
	Cause EndpointMoveCause `json:"cause,omitempty"`
	// startedAt is when the new address was recorded.
	// +required
	StartedAt metav1.Time `json:"startedAt,omitempty,omitzero"`
	// completedAt is when nothing that could be reached used the former address
	// any more. Absent while the move is under way.
	// +optional
	CompletedAt metav1.Time `json:"completedAt,omitempty,omitzero"`
}
