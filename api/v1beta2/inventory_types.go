package v1beta2

// HostInventory is what a host found out about itself: facts for people and for
// selection, never for identity or trust.
type HostInventory struct {
	// machineID is /etc/machine-id.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// architecture in Go's terms: amd64, arm64.
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// smbios holds the DMI strings.
	// +optional
	SMBIOS HostSMBIOS `json:"smbios,omitempty,omitzero"`
	// cpu describes the processors.
	// +optional
	CPU HostCPU `json:"cpu,omitempty,omitzero"`
	// memoryBytes the kernel may use.
	// +optional
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// disks are the whole block devices.
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
}

// HostSMBIOS holds the DMI strings; often blank or made up by the vendor.
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
	// model name.
	// +optional
	Model string `json:"model,omitempty"`
	// cores counts hardware threads.
	// +optional
	Cores int32 `json:"cores,omitempty"`
}

// HostDisk is a whole block device.
type HostDisk struct {
	// name of the device, without /dev/.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name,omitempty"`
	// sizeBytes of the device.
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
	// speedMbps of the link.
	// +optional
	SpeedMbps int32 `json:"speedMbps,omitempty"`
	// defaultRoute is true for the interface of the default route.
	// +optional
	DefaultRoute bool `json:"defaultRoute,omitempty"`
	// addresses in CIDR notation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []string `json:"addresses,omitempty"`
}

// HostOS names the operating system, as in os-release(5).
type HostOS struct {
	// id, for example "debian".
	// +optional
	ID string `json:"id,omitempty"`
	// versionID, for example "12".
	// +optional
	VersionID string `json:"versionID,omitempty"`
	// prettyName for people.
	// +optional
	PrettyName string `json:"prettyName,omitempty"`
	// kernelVersion that runs.
	// +optional
	KernelVersion string `json:"kernelVersion,omitempty"`
}
