package v1beta2

// HostInventory is what the agent found out about the host. Use it to select hosts. It
// proves neither identity nor trust, because the host reports it.
type HostInventory struct {
	// machineID is the content of /etc/machine-id.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// architecture as Go names it, for example amd64 or arm64.
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// smbios contains the SMBIOS (DMI) strings.
	// +optional
	SMBIOS HostSMBIOS `json:"smbios,omitempty,omitzero"`
	// cpu describes the processors.
	// +optional
	CPU HostCPU `json:"cpu,omitempty,omitzero"`
	// memoryBytes is the memory that the kernel can use, in bytes.
	// +optional
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// disks are the block devices, without partitions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Disks []HostDisk `json:"disks,omitempty"`
	// nics are the physical network interfaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NICs []HostNIC `json:"nics,omitempty"`
	// os is the operating system.
	// +optional
	OS HostOS `json:"os,omitempty,omitzero"`
	// kubernetes are the programs that kubeadm and its nodes need, as far as the host has
	// them. It is absent if the agent does not report them.
	// +optional
	Kubernetes *HostKubernetes `json:"kubernetes,omitempty"`
	// preflight is what kubeadm and the kubelet need of the operating system. It is absent if
	// the agent does not report it.
	// +optional
	Preflight *HostPreflight `json:"preflight,omitempty"`
}

// HostSMBIOS contains the SMBIOS (DMI) strings. Vendors may leave them blank or fill in
// placeholders.
type HostSMBIOS struct {
	// manufacturer of the system.
	// +optional
	Manufacturer string `json:"manufacturer,omitempty"`
	// productName of the system.
	// +optional
	ProductName string `json:"productName,omitempty"`
	// serialNumber of the system.
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
	// uuid of the system.
	// +optional
	UUID string `json:"uuid,omitempty"`
}

// HostCPU describes the processors.
type HostCPU struct {
	// model is the name of the processor model.
	// +optional
	Model string `json:"model,omitempty"`
	// cores is the number of hardware threads.
	// +optional
	Cores int32 `json:"cores,omitempty"`
}

// HostDisk is a block device.
type HostDisk struct {
	// name of the device, without /dev/.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name,omitempty"`
	// sizeBytes is the size of the device, in bytes.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// rotational is true for spinning disks.
	// +optional
	Rotational bool `json:"rotational,omitempty"`
	// model of the disk.
	// +optional
	Model string `json:"model,omitempty"`
	// serial number of the disk.
	// +optional
	Serial string `json:"serial,omitempty"`
}

// HostNIC is a physical network interface.
type HostNIC struct {
	// name of the interface.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name,omitempty"`
	// mac is the hardware address.
	// +optional
	MAC string `json:"mac,omitempty"`
	// speedMbps is the link speed, in Mbit/s.
	// +optional
	SpeedMbps int32 `json:"speedMbps,omitempty"`
	// defaultRoute is true if the default route uses the interface.
	// +optional
	DefaultRoute bool `json:"defaultRoute,omitempty"`
	// addresses in CIDR notation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []string `json:"addresses,omitempty"`
}

// HostOS identifies the operating system, as in os-release(5).
type HostOS struct {
	// id, for example "debian".
	// +optional
	ID string `json:"id,omitempty"`
	// versionID, for example "12".
	// +optional
	VersionID string `json:"versionID,omitempty"`
	// prettyName is the name for people.
	// +optional
	PrettyName string `json:"prettyName,omitempty"`
	// kernelVersion is the version of the running kernel.
	// +optional
	KernelVersion string `json:"kernelVersion,omitempty"`
	// image is the source of the image of Elemental OS that the host boots; absent on other
	// systems.
	// +optional
	Image string `json:"image,omitempty"`
}

// HostKubernetes are the programs that kubeadm and its nodes need. A program that the host
// does not have is absent.
type HostKubernetes struct {
	// kubelet that the host's unit kubelet.service starts.
	// +optional
	Kubelet HostProgram `json:"kubelet,omitempty,omitzero"`
	// kubeadm sets up nodes and upgrades them.
	// +optional
	Kubeadm HostProgram `json:"kubeadm,omitempty,omitzero"`
	// kubectl is not needed by nodes.
	// +optional
	Kubectl HostProgram `json:"kubectl,omitempty,omitzero"`
	// containerRuntime that a kubelet would use. Of several, one whose unit is enabled
	// comes first.
	// +optional
	ContainerRuntime HostContainerRuntime `json:"containerRuntime,omitempty,omitzero"`
	// runc starts containers for the container runtime.
	// +optional
	Runc HostProgram `json:"runc,omitempty,omitzero"`
	// cniPlugins has the folder of the CNI plugins as its path, with the version and the
	// origin of the plugin loopback.
	// +optional
	CNIPlugins HostProgram `json:"cniPlugins,omitempty,omitzero"`
}

// ProgramOrigin says who has installed a program.
// +kubebuilder:validation:Enum=Package;Bundle;Other
type ProgramOrigin string

// Origins of programs.
const (
	// OriginPackage: a package of the operating system owns the file.
	OriginPackage ProgramOrigin = "Package"
	// OriginBundle: the agent has installed the file from a bundle.
	OriginBundle ProgramOrigin = "Bundle"
	// OriginOther: no package owns the file.
	OriginOther ProgramOrigin = "Other"
)

// HostProgram is an installed program.
type HostProgram struct {
	// path of the program.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Path string `json:"path,omitempty"`
	// version as the program prints it. It is blank if the program prints none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// origin of the file. Package: a package of the operating system owns it. Bundle: the
	// agent has installed it from a bundle. Other: somebody else has installed it. It is blank
	// if the origin is unknown.
	// +optional
	Origin ProgramOrigin `json:"origin,omitempty"`
}

// ContainerRuntimeName is the name of a container runtime.
// +kubebuilder:validation:Enum=Containerd;CRIO
type ContainerRuntimeName string

// Container runtimes.
const (
	RuntimeContainerd ContainerRuntimeName = "Containerd"
	RuntimeCRIO       ContainerRuntimeName = "CRIO"
)

// HostContainerRuntime is an installed container runtime.
type HostContainerRuntime struct {
	// name of the container runtime: Containerd or CRIO.
	// +required
	Name ContainerRuntimeName `json:"name,omitempty"`
	// path of the program.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Path string `json:"path,omitempty"`
	// version as the program prints it. It is blank if the program prints none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// origin of the file. Package: a package of the operating system owns it. Bundle: the
	// agent has installed it from a bundle. Other: somebody else has installed it. It is blank
	// if the origin is unknown.
	// +optional
	Origin ProgramOrigin `json:"origin,omitempty"`
	// socket is the path of the socket that the container runtime is configured to serve.
	// It says nothing about whether the runtime runs.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Socket string `json:"socket,omitempty"`
}
