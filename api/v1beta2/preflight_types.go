package v1beta2

// FeatureState is the state of something that the operating system of a host offers.
// +kubebuilder:validation:Enum=Enabled;Disabled;Missing
type FeatureState string

// Feature states.
const (
	FeatureEnabled  FeatureState = "Enabled"
	FeatureDisabled FeatureState = "Disabled"
	// FeatureMissing: the host does not have it, so it can't be enabled.
	FeatureMissing FeatureState = "Missing"
)

// HostPreflight is what kubeadm and the kubelet need of the host's operating system. A fact
// that the agent could not find out is absent.
type HostPreflight struct {
	// swap is Enabled if the host swaps to a disk, a file or compressed memory.
	// +optional
	Swap FeatureState `json:"swap,omitempty"`
	// bridgeNetfilter is Enabled if the packet filter sees the traffic of bridges, which the
	// kernel module br_netfilter does. It is Missing if the kernel does not have the module.
	// +optional
	BridgeNetfilter FeatureState `json:"bridgeNetfilter,omitempty"`
	// ipForwarding is Enabled if the host forwards IPv4 packets.
	// +optional
	IPForwarding FeatureState `json:"ipForwarding,omitempty"`
	// cgroupVersion is the version of the control groups that the host has mounted, 1 or 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2
	CgroupVersion int32 `json:"cgroupVersion,omitempty"`
	// kubeletCgroupV1 is Enabled if the kubelet's own configuration on the host, in the folder that
	// its unit names with --config-dir, has failCgroupV1: false. It is absent on hosts with
	// version 2 of control groups.
	// +optional
	KubeletCgroupV1 FeatureState `json:"kubeletCgroupV1,omitempty"`
	// takenPorts are the TCP ports among those of a node of kubeadm on which a process
	// listens.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	TakenPorts []int32 `json:"takenPorts,omitempty"`
	// runtimeSocket is Enabled if a process listens on the socket of the container runtime.
	// +optional
	RuntimeSocket FeatureState `json:"runtimeSocket,omitempty"`
	// nameServers is Missing if /etc/resolv.conf names no name server.
	// +optional
	NameServers FeatureState `json:"nameServers,omitempty"`
	// freeBytes is the free space below /var/lib in bytes, rounded down to a power of two. It is 1
	// if the disk is full.
	// +optional
	FreeBytes int64 `json:"freeBytes,omitempty"`
}

// FindingName names what can keep a machine off a host.
// +kubebuilder:validation:Enum=Programs;Versions;Swap;BridgeNetfilter;IPForwarding;Ports;Runtime;CgroupVersion;NameServers;DiskSpace;Clock
type FindingName string

// Names of findings.
const (
	// FindingPrograms: kubelet, kubeadm or the container runtime is missing, or prints no
	// version.
	FindingPrograms FindingName = "Programs"
	// FindingVersions: a program is of another version than the machine needs.
	FindingVersions FindingName = "Versions"
	// FindingSwap: swap is on.
	FindingSwap FindingName = "Swap"
	// FindingBridgeNetfilter: the packet filter does not see the traffic of bridges.
	FindingBridgeNetfilter FindingName = "BridgeNetfilter"
	// FindingIPForwarding: the host does not forward packets.
	FindingIPForwarding FindingName = "IPForwarding"
	// FindingPorts: a port that a node needs is taken.
	FindingPorts FindingName = "Ports"
	// FindingRuntime: no process listens on the socket of the container runtime.
	FindingRuntime FindingName = "Runtime"
	// FindingCgroupVersion: the kubelet refuses the host's version of control groups.
	FindingCgroupVersion FindingName = "CgroupVersion"
	// FindingNameServers: the host has no name server, so images can't be pulled.
	FindingNameServers FindingName = "NameServers"
	// FindingDiskSpace: the images of Kubernetes do not fit on the disk.
	FindingDiskSpace FindingName = "DiskSpace"
	// FindingClock: certificates and tokens are not valid by the host's clock.
	FindingClock FindingName = "Clock"
)
