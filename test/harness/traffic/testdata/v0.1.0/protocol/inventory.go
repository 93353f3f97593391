package protocol

// Inventory is the hardware and software that a host reports. It is an assertion of
// the host: it is shown to users and used to select hosts by hardware, but never for
// identity or trust.
type Inventory struct {
	MachineID    string `json:"machineID,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	SMBIOS       SMBIOS `json:"smbios,omitzero"`
	CPU          CPU    `json:"cpu,omitzero"`
	// MemoryBytes is the memory that the kernel may use.
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	Disks       []Disk `json:"disks,omitempty"`
	NICs        []NIC  `json:"nics,omitempty"`
	OS          OS     `json:"os,omitzero"`
	// Kubernetes is nil if the agent is too old to report it.
	Kubernetes *Kubernetes `json:"kubernetes,omitempty"`
	// Preflight is nil if the agent is too old to report it.
	Preflight *Preflight `json:"preflight,omitempty"`
}

// SMBIOS holds the DMI strings of the machine. Manufacturers often leave them empty
// or set placeholders.
type SMBIOS struct {
	Manufacturer string `json:"manufacturer,omitempty"`
	ProductName  string `json:"productName,omitempty"`
	SerialNumber string `json:"serialNumber,omitempty"`
	UUID         string `json:"uuid,omitempty"`
}

// CPU describes the processors.
type CPU struct {
	Model string `json:"model,omitempty"`
	// Cores is the number of hardware threads that the kernel uses.
	Cores int32 `json:"cores,omitempty"`
}

// Disk is a whole block device.
type Disk struct {
	Name       string `json:"name"`
	SizeBytes  int64  `json:"sizeBytes,omitempty"`
	Rotational bool   `json:"rotational,omitempty"`
	Model      string `json:"model,omitempty"`
	Serial     string `json:"serial,omitempty"`
}

// NIC is a physical network interface.
type NIC struct {
	Name      string `json:"name"`
	MAC       string `json:"mac,omitempty"`
	SpeedMbps int32  `json:"speedMbps,omitempty"`
	// DefaultRoute is true for the interface of the default route.
	DefaultRoute bool `json:"defaultRoute,omitempty"`
	// Addresses in CIDR notation.
	Addresses []string `json:"addresses,omitempty"`
}

// OS names the operating system, as in os-release(5).
type OS struct {
	ID            string `json:"id,omitempty"`
	VersionID     string `json:"versionID,omitempty"`
	PrettyName    string `json:"prettyName,omitempty"`
	KernelVersion string `json:"kernelVersion,omitempty"`
	// Image is the source of the image of Elemental OS that the host boots; blank on other
	// systems.
	Image string `json:"image,omitempty"`
}

// Kubernetes names the programs that kubeadm and its nodes need. The zero value means
// that the host has none of them.
type Kubernetes struct {
	Kubelet          Program          `json:"kubelet,omitzero"`
	Kubeadm          Program          `json:"kubeadm,omitzero"`
	Kubectl          Program          `json:"kubectl,omitzero"`
	ContainerRuntime ContainerRuntime `json:"containerRuntime,omitzero"`
	Runc             Program          `json:"runc,omitzero"`
	// CNIPlugins has the folder of the plugins, with the version and origin of one of them.
	CNIPlugins Program `json:"cniPlugins,omitzero"`
}

// Program is an installed program.
type Program struct {
	Path string `json:"path"`
	// Version as the program prints it; blank if it prints none.
	Version string `json:"version,omitempty"`
	// Origin is blank if the package databases did not answer.
	Origin Origin `json:"origin,omitempty"`
}

// ContainerRuntime is the container runtime that a kubelet would use.
type ContainerRuntime struct {
	Name RuntimeName `json:"name"`
	// Path, Version and Origin are those of a Program.
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
	Origin  Origin `json:"origin,omitempty"`
	// Socket is the path of the socket that the runtime is configured to serve.
	Socket string `json:"socket,omitempty"`
}

// Origin says who has installed a program.
type Origin string

// Origins.
const (
	// OriginPackage: a package of the operating system owns the file.
	OriginPackage Origin = "Package"
	// OriginBundle: the agent has installed the file from a bundle.
	OriginBundle Origin = "Bundle"
	// OriginOther: no package owns the file.
	OriginOther Origin = "Other"
)

// RuntimeName is the name of a container runtime.
type RuntimeName string

// Container runtimes.
const (
	RuntimeContainerd RuntimeName = "Containerd"
	RuntimeCRIO       RuntimeName = "CRIO"
)

// AddressType is one of the address types of Cluster API's MachineAddress.
type AddressType string

// Address types.
const (
	AddressHostname   AddressType = "Hostname"
	AddressInternalIP AddressType = "InternalIP"
	AddressExternalIP AddressType = "ExternalIP"
)

// Address is one address of the host. The first InternalIP is that of the
// default route's interface.
type Address struct {
	Type    AddressType `json:"type"`
	Address string      `json:"address"`
}
