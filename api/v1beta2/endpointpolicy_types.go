package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointType says who provides the control plane endpoint.
// +kubebuilder:validation:Enum=Host;VIP;External;Tunnel
type EndpointType string

// Endpoint types.
const (
	// EndpointTypeHost: the endpoint is the address of one of the cluster's
	// control-plane hosts.
	EndpointTypeHost EndpointType = "Host"
	// EndpointTypeVIP: the endpoint is a virtual IP address that kube-vip on the
	// control-plane hosts announces.
	EndpointTypeVIP EndpointType = "VIP"
	// EndpointTypeExternal: a user provides the endpoint; the provider waits for it.
	EndpointTypeExternal EndpointType = "External"
	// EndpointTypeTunnel: the endpoint is a DNS name that never changes. In the management
	// cluster it leads to the manager's gateway, which reaches the cluster's API servers
	// through tunnels that hosts have opened. On each host it leads to a forwarder of the
	// host itself.
	EndpointTypeTunnel EndpointType = "Tunnel"
)

// ControlPlaneEndpointPolicy says how a blank control plane endpoint is set.
type ControlPlaneEndpointPolicy struct {
	// type of the endpoint: Host is the address of a control-plane host, VIP a virtual
	// IP address announced by kube-vip, External an address that a user provides, Tunnel a
	// DNS name that leads to the API servers through tunnels that hosts have opened.
	// Defaults to Host if controlPlaneEndpoint.host is blank, and to External if a user
	// has set it.
	// +optional
	Type EndpointType `json:"type,omitempty"`

	// host configures type Host: which address of a host is the endpoint, and when it
	// moves to another host.
	// +optional
	Host *EndpointHostPolicy `json:"host,omitempty"`

	// vip configures type VIP: the address, and how kube-vip announces it.
	// +optional
	VIP *EndpointVIP `json:"vip,omitempty"`

	// hostRef refers to the ElementalHost whose address is the endpoint. The provider
	// sets it. It is absent if the endpoint is not the address of a host.
	// +optional
	HostRef *EndpointHostReference `json:"hostRef,omitempty"`

	// formerEndpoints are the endpoints before the last moves; the newest is the first.
	// The provider sets them. Hosts that still use a former endpoint are changed to the
	// current one, even after a long time offline.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	FormerEndpoints []FormerEndpoint `json:"formerEndpoints,omitempty"`
}

// EndpointHostReference refers to the host whose address is the endpoint.
type EndpointHostReference struct {
	// name of the ElementalHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// chosenAt is when the provider chose the host. The bootstrap data of Machines
	// created before may contain another endpoint.
	// +required
	ChosenAt metav1.Time `json:"chosenAt,omitempty,omitzero"`
}

// FormerEndpoint is an endpoint that is no longer used.
type FormerEndpoint struct {
	// host is the address of the former endpoint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host,omitempty"`
	// port of the former endpoint.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// hostName is the name of the ElementalHost that had the address.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// rejectedSince is when the provider instructed that host to reject connections of
	// other hosts at this address, so that clients close their open connections. It is
	// absent if the host does not reject them.
	// +optional
	RejectedSince metav1.Time `json:"rejectedSince,omitempty,omitzero"`
}

// EndpointHostPolicy configures an endpoint that is the address of a host.
type EndpointHostPolicy struct {
	// address selects the address of a host that is the endpoint. Defaults to the
	// InternalIP of the interface with the default route.
	// +optional
	Address HostAddressRule `json:"address,omitempty,omitzero"`
	// failover says when the endpoint moves away from a dead host.
	// +optional
	Failover EndpointFailover `json:"failover,omitempty,omitzero"`
}

// HostAddressType is a type of Cluster API's MachineAddress.
// +kubebuilder:validation:Enum=InternalIP;ExternalIP;Hostname
type HostAddressType string

// IPFamily is an IP version.
// +kubebuilder:validation:Enum=IPv4;IPv6
type IPFamily string

// IP families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// HostAddressRule selects an address of a host: the first one that meets all given
// fields.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'Hostname' || !(has(self.interface) || has(self.cidr) || has(self.family))",message="interface, cidr and family are for IP addresses, not for type Hostname"
// +kubebuilder:validation:XValidation:rule="!has(self.cidr) || isCIDR(self.cidr)",message="cidr must be a network like 10.0.0.0/8 or 2001:db8::/32"
type HostAddressRule struct {
	// type of the address. Defaults to InternalIP.
	// +optional
	Type HostAddressType `json:"type,omitempty"`
	// interface is the network interface that has the address.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// cidr is a network that contains the address, for example 10.0.0.0/8.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CIDR string `json:"cidr,omitempty"`
	// family of the address: IPv4 or IPv6.
	// +optional
	Family IPFamily `json:"family,omitempty"`
}

// FailoverPolicy says who decides on a failover.
// +kubebuilder:validation:Enum=Automatic;Manual
type FailoverPolicy string

// Failover policies.
const (
	// FailoverAutomatic: the endpoint moves automatically when its host is dead.
	FailoverAutomatic FailoverPolicy = "Automatic"
	// FailoverManual: the endpoint moves when MoveEndpointAnnotation requests it, or
	// when its Machine is deleted.
	FailoverManual FailoverPolicy = "Manual"
)

// EndpointFailover says when the endpoint moves away from a dead host.
// +kubebuilder:validation:MinProperties=1
type EndpointFailover struct {
	// policy: Automatic moves the endpoint when its host is dead. Manual moves it only
	// when the annotation infrastructure.cluster.x-k8s.io/move-endpoint requests it, or
	// when its Machine is deleted. Defaults to Automatic.
	// +optional
	Policy FailoverPolicy `json:"policy,omitempty"`
	// afterSeconds is how long the other control-plane hosts must fail to reach the
	// endpoint before it moves, in seconds. Defaults to 300. If the endpoint host does not
	// answer the manager either, it is at most 30, unless the host is in maintenance or
	// runs a requested reboot or upgrade.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	AfterSeconds *int32 `json:"afterSeconds,omitempty"`
}

// EndpointStatus is the state of an endpoint that is the address of a host.
type EndpointStatus struct {
	// since is when the current endpoint was set.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// moves is the number of moves from one address to another.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Moves int64 `json:"moves,omitempty"`
	// unreachableSince is when the other control-plane hosts began to report that they
	// can't reach the endpoint, by the manager's clock. It is absent if they reach it,
	// or if none of them reports.
	// +optional
	UnreachableSince metav1.Time `json:"unreachableSince,omitempty,omitzero"`
	// lastMove is the move in progress, or the last one.
	// +optional
	LastMove *EndpointMove `json:"lastMove,omitempty"`
}

// EndpointMoveCause is the cause of a move.
// +kubebuilder:validation:Enum=HostDead;MachineDeleted;AddressChanged;Requested
type EndpointMoveCause string

// Causes of moves.
const (
	MoveHostDead       EndpointMoveCause = "HostDead"
	MoveMachineDeleted EndpointMoveCause = "MachineDeleted"
	MoveAddressChanged EndpointMoveCause = "AddressChanged"
	MoveRequested      EndpointMoveCause = "Requested"
)

// EndpointMove is a move of the endpoint to another address.
type EndpointMove struct {
	// from is the former address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	From string `json:"from,omitempty"`
	// to is the new address.
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
	// completedAt is when all reachable hosts and objects had stopped using the former
	// address. It is absent while the move is in progress.
	// +optional
	CompletedAt metav1.Time `json:"completedAt,omitempty,omitzero"`
}
