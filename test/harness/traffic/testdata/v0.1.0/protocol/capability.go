package protocol

// Capability is something an agent can do.
type Capability string

// Capabilities of this version's agent.
const (
	CapabilityBootstrap Capability = "Bootstrap"
	CapabilityReset     Capability = "Reset"
	CapabilityRotate    Capability = "Rotate"
	CapabilityReboot    Capability = "Reboot"
	// CapabilityUpgrade: the agent upgrades the OS with the elemental CLI.
	CapabilityUpgrade Capability = "Upgrade"
	// CapabilityErase: a Reset with Operation.Erase erases data disks.
	CapabilityErase Capability = "Erase"
	// CapabilityUpdate: the agent updates itself to Desired.Agent.
	CapabilityUpdate Capability = "Update"
	// CapabilityEndpoint: the agent applies Desired.Endpoint.
	CapabilityEndpoint Capability = "Endpoint"
	// CapabilityFiles: the agent writes Desired.Files.
	CapabilityFiles Capability = "Files"
	// CapabilityReportEndpoint: the agent acts on Plan.ReportEndpoint.
	CapabilityReportEndpoint Capability = "ReportEndpoint"
	// CapabilityTunnel: the agent opens a tunnel if Desired.Tunnel asks for one.
	CapabilityTunnel Capability = "Tunnel"
	// CapabilityLocalEndpoint: the agent serves Endpoint.Local on the host.
	CapabilityLocalEndpoint Capability = "LocalEndpoint"
	// CapabilityBundle: the agent stages Desired.Bundle, and a Bootstrap installs it.
	CapabilityBundle Capability = "Bundle"
	// CapabilityNodeUpgrade and CapabilityNodeImage: the agent does NodeUpgrades to a Bundle, and
	// to an OSImage.
	CapabilityNodeUpgrade Capability = "NodeUpgrade"
	CapabilityNodeImage   Capability = "NodeImage"
	// CapabilityEtcdSnapshot: the agent takes Desired.EtcdSnapshot.
	CapabilityEtcdSnapshot Capability = "EtcdSnapshot"
	// CapabilityEtcdRestore: the agent does EtcdRestores.
	CapabilityEtcdRestore Capability = "EtcdRestore"
	// CapabilityEtcdRestoreOwnData: an EtcdRestore can use the data that the member has.
	CapabilityEtcdRestoreOwnData Capability = "EtcdRestoreOwnData"
	// CapabilityControlPlaneHalt: the agent does ControlPlaneHalts and ControlPlaneStarts.
	CapabilityControlPlaneHalt Capability = "ControlPlaneHalt"
	// CapabilityEtcdSnapshotUpload: the agent uploads Desired.EtcdSnapshotUpload.
	CapabilityEtcdSnapshotUpload Capability = "EtcdSnapshotUpload"
	// CapabilityEtcdSnapshotFetch: an EtcdRestore can begin with an uploaded snapshot.
	CapabilityEtcdSnapshotFetch Capability = "EtcdSnapshotFetch"
	// CapabilityCertificateRenewal: the agent does CertificateRenewals.
	CapabilityCertificateRenewal Capability = "CertificateRenewal"
	// CapabilityLogs: the agent keeps logs of operations, and sends the one of Desired.Log.
	CapabilityLogs Capability = "Logs"
)
