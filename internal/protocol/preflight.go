package protocol

// FeatureState is the state of something that the operating system offers; blank if it is
// unknown.
type FeatureState string

// Feature states.
const (
	FeatureEnabled  FeatureState = "Enabled"
	FeatureDisabled FeatureState = "Disabled"
	// FeatureMissing: the host does not have it, so it can't be enabled.
	FeatureMissing FeatureState = "Missing"
)

// MaxTakenPorts is the maximum length of Preflight.TakenPorts.
const MaxTakenPorts = 16

// Preflight has the facts that decide whether kubeadm and the kubelet work on the host. They
// are facts only: the manager decides which of them are in the way of a Machine.
type Preflight struct {
	// Swap is enabled if the host swaps anywhere.
	Swap FeatureState `json:"swap,omitempty"`
	// BridgeNetfilter is enabled if the packet filter sees the traffic of bridges, and missing
	// if the kernel has no module br_netfilter.
	BridgeNetfilter FeatureState `json:"bridgeNetfilter,omitempty"`
	// IPForwarding is that of IPv4.
	IPForwarding FeatureState `json:"ipForwarding,omitempty"`
	// CgroupVersion is 1 or 2; 0 if it is unknown.
	CgroupVersion int32 `json:"cgroupVersion,omitempty"`
	// KubeletCgroupV1 is enabled if the configuration that the host's kubelet has before kubeadm
	// writes one allows version 1 of control groups. It is blank on hosts with version 2, and if
	// the host has no kubelet.
	KubeletCgroupV1 FeatureState `json:"kubeletCgroupV1,omitempty"`
	// TakenPorts are the TCP ports of a node of kubeadm on which a process listens, sorted.
	TakenPorts []int32 `json:"takenPorts,omitempty"`
	// RuntimeSocket is enabled if a process listens on ContainerRuntime.Socket.
	RuntimeSocket FeatureState `json:"runtimeSocket,omitempty"`
	// NameServers is missing if the host's resolver has no name server.
	NameServers FeatureState `json:"nameServers,omitempty"`
	// FreeBytes is the free space below /var/lib, rounded down to a power of two, so that it
	// seldom changes; 1 if the disk is full, 0 if it is unknown.
	FreeBytes int64 `json:"freeBytes,omitempty"`
}
