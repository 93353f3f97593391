package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostAgent describes the agent on a host.
type HostAgent struct {
	// version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// protocol is the version of the agent protocol that the agent uses.
	// +optional
	Protocol int32 `json:"protocol,omitempty"`
	// capabilities of the agent: the operations and features that it supports.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Capabilities []string `json:"capabilities,omitempty"`
	// bootID is the boot ID of the kernel. It changes with each boot.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// clockSkewSeconds is how far the host's clock was ahead of the manager's when the
	// agent connected, in seconds, rounded to whole minutes. It is negative if the clock
	// was behind, and 0 if the difference was less than a minute.
	// +optional
	ClockSkewSeconds int64 `json:"clockSkewSeconds,omitempty"`
	// trustDigest identifies the trust bundle of the agent: the first 16 hex digits of
	// the SHA-256 of its PEM.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	TrustDigest string `json:"trustDigest,omitempty"`
	// update is the last update of the agent.
	// +optional
	Update *AgentUpdate `json:"update,omitempty"`
}

// HostSuccessor says whether the host reaches the successor of its registration.
type HostSuccessor struct {
	// digest identifies the successor that the agent knows: 16 hex digits.
	// +required
	// +kubebuilder:validation:MinLength=16
	// +kubebuilder:validation:MaxLength=16
	Digest string `json:"digest,omitempty"`
	// reached is true once the successor has answered the host.
	// +optional
	Reached *bool `json:"reached,omitempty"`
	// message says why the successor was not reached.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// AgentUpdate is an update of the agent.
type AgentUpdate struct {
	// version that the agent is updated to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`
	// state of the update.
	// +required
	State OperationState `json:"state,omitempty"`
	// message explains a failure.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// HostFailures counts consecutive failed bootstraps.
type HostFailures struct {
	// consecutive failures since the last bootstrap that succeeded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Consecutive int32 `json:"consecutive,omitempty"`
	// lastOperationID is the ID of the claim of the last counted failure.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LastOperationID string `json:"lastOperationID,omitempty"`
	// lastTime is when the manager received the report of the last failure.
	// +optional
	LastTime metav1.Time `json:"lastTime,omitempty,omitzero"`
}

// HostErasure is the result of an erasure of data disks.
type HostErasure struct {
	// operationID is the ID of the claim that the reset was for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	OperationID string `json:"operationID,omitempty"`
	// disks of the host with their results.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Disks []ErasedDisk `json:"disks,omitempty"`
}

// ErasureResult is the result of an erasure for one disk.
// +kubebuilder:validation:Enum=Erased;Kept;Failed
type ErasureResult string

// Erasure results.
const (
	ErasureErased ErasureResult = "Erased"
	// ErasureKept: the disk contains the operating system and was not erased.
	ErasureKept   ErasureResult = "Kept"
	ErasureFailed ErasureResult = "Failed"
)

// ErasedDisk is the result of an erasure for one disk.
type ErasedDisk struct {
	// name of the device.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`
	// serial number of the device.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Serial string `json:"serial,omitempty"`
	// sizeBytes is the size of the device, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// result of the erasure. Kept means that the disk contains the operating system.
	// +required
	Result ErasureResult `json:"result,omitempty"`
	// message describes how the disk was erased, or why it was not.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// ConnectionState says whether the agent is connected.
// +kubebuilder:validation:Enum=Connected;Disconnected
type ConnectionState string

// Connection states.
const (
	ConnectionConnected    ConnectionState = "Connected"
	ConnectionDisconnected ConnectionState = "Disconnected"
)

// HostConnection is the state of the agent's connection.
type HostConnection struct {
	// state of the connection.
	// +required
	State ConnectionState `json:"state,omitempty"`
	// since is when the connection entered the state, by the manager's clock.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`
}

// HostTunnel is the state of the tunnel that the manager has asked a host for.
type HostTunnel struct {
	// state of the tunnel.
	// +required
	State ConnectionState `json:"state,omitempty"`
	// since is when the tunnel entered the state, by the manager's clock.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// message describes why there is no tunnel.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// CleanlinessState says whether leftovers of a former node were found.
// +kubebuilder:validation:Enum=Clean;Dirty
type CleanlinessState string

// Cleanliness states.
const (
	CleanlinessClean CleanlinessState = "Clean"
	CleanlinessDirty CleanlinessState = "Dirty"
)

// HostCleanliness is the result of a search for leftovers of former nodes.
type HostCleanliness struct {
	// state is Dirty if leftovers were found.
	// +required
	State CleanlinessState `json:"state,omitempty"`
	// leftovers that were found, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Leftovers []string `json:"leftovers,omitempty"`
}

// OperationType is the type of an operation.
// +kubebuilder:validation:Enum=Bootstrap;Reset;Reboot;Upgrade;NodeUpgrade;EtcdRestore;CertificateRenewal;ControlPlaneHalt;ControlPlaneStart
type OperationType string

// Operation types.
const (
	OperationBootstrap OperationType = "Bootstrap"
	OperationReset     OperationType = "Reset"
	OperationReboot    OperationType = "Reboot"
	OperationUpgrade   OperationType = "Upgrade"
	// OperationNodeUpgrade upgrades Kubernetes in place.
	OperationNodeUpgrade OperationType = "NodeUpgrade"
	// OperationEtcdRestore replaces the data of etcd.
	OperationEtcdRestore OperationType = "EtcdRestore"
	// OperationCertificateRenewal renews the certificates of the control plane on the host.
	OperationCertificateRenewal OperationType = "CertificateRenewal"
	// OperationControlPlaneHalt ends the control plane on the host, and
	// OperationControlPlaneStart starts it again.
	OperationControlPlaneHalt  OperationType = "ControlPlaneHalt"
	OperationControlPlaneStart OperationType = "ControlPlaneStart"
)

// OperationState is the state of an operation.
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Unsupported
type OperationState string

// Operation states.
const (
	OperationRunning     OperationState = "Running"
	OperationSucceeded   OperationState = "Succeeded"
	OperationFailed      OperationState = "Failed"
	OperationUnsupported OperationState = "Unsupported"
)

// HostOperation is an operation that a host runs or has run.
type HostOperation struct {
	// type of the operation.
	// +required
	Type OperationType `json:"type,omitempty"`
	// id of the operation: the ID of its claim or request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// state of the operation. Unsupported means that the agent can't run it.
	// +required
	State OperationState `json:"state,omitempty"`
	// step that is running or has failed.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Step string `json:"step,omitempty"`
	// message explains a failure. It contains no secrets. The full output is on the
	// host.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// startedAt is when the operation started, by the host's clock.
	// +optional
	StartedAt metav1.Time `json:"startedAt,omitempty,omitzero"`
	// finishedAt is when the operation finished, by the host's clock.
	// +optional
	FinishedAt metav1.Time `json:"finishedAt,omitempty,omitzero"`
}
