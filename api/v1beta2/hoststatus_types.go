package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostAgent is the agent that runs on a host.
type HostAgent struct {
	// version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// protocol version that it speaks.
	// +optional
	Protocol int32 `json:"protocol,omitempty"`
	// capabilities that it has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Capabilities []string `json:"capabilities,omitempty"`
	// bootID changes with every boot.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// clockSkewSeconds is how far the host's clock was ahead of the manager's (or,
	// below zero, behind it) when the agent connected, in whole minutes; 0 when
	// that is less than a minute.
	// +optional
	ClockSkewSeconds int64 `json:"clockSkewSeconds,omitempty"`
	// trustDigest names the CA bundle that the agent trusts: the first 16 hex
	// digits of the SHA-256 of its PEM.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	TrustDigest string `json:"trustDigest,omitempty"`
	// update is how the last update of the agent went.
	// +optional
	Update *AgentUpdate `json:"update,omitempty"`
}

// AgentUpdate is how an update of the agent went.
type AgentUpdate struct {
	// version that the agent was to become.
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

// HostFailures counts bootstraps that failed in a row.
type HostFailures struct {
	// consecutive failures since the last bootstrap that ended well.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Consecutive int32 `json:"consecutive,omitempty"`
	// lastOperationID is the claim of the last one counted.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LastOperationID string `json:"lastOperationID,omitempty"`
	// lastTime is when the manager heard of it.
	// +optional
	LastTime metav1.Time `json:"lastTime,omitempty,omitzero"`
}

// HostErasure reports an erasure of data disks.
type HostErasure struct {
	// operationID is the claim that the reset was for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	OperationID string `json:"operationID,omitempty"`
	// disks of the host, and what became of each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Disks []ErasedDisk `json:"disks,omitempty"`
}

// ErasureResult is what became of a disk.
// +kubebuilder:validation:Enum=Erased;Kept;Failed
type ErasureResult string

// Erasure results.
const (
	ErasureErased ErasureResult = "Erased"
	// ErasureKept: the disk holds the operating system.
	ErasureKept   ErasureResult = "Kept"
	ErasureFailed ErasureResult = "Failed"
)

// ErasedDisk is what became of one disk.
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
	// sizeBytes of the device.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// result of the erasure.
	// +required
	Result ErasureResult `json:"result,omitempty"`
	// message says how, or why not.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// ConnectionState tells whether the agent is connected.
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
	// since when it is in that state.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`
}

// CleanlinessState tells whether something of a former node was found.
// +kubebuilder:validation:Enum=Clean;Dirty
type CleanlinessState string

// Cleanliness states.
const (
	CleanlinessClean CleanlinessState = "Clean"
	CleanlinessDirty CleanlinessState = "Dirty"
)

// HostCleanliness is what the agent found of former nodes.
type HostCleanliness struct {
	// state found.
	// +required
	State CleanlinessState `json:"state,omitempty"`
	// leftovers found, the first few.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Leftovers []string `json:"leftovers,omitempty"`
}

// OperationType is a kind of operation of the agent protocol.
// +kubebuilder:validation:Enum=Bootstrap;Reset;Reboot;Upgrade
type OperationType string

// Operation types.
const (
	OperationBootstrap OperationType = "Bootstrap"
	OperationReset     OperationType = "Reset"
	OperationReboot    OperationType = "Reboot"
	OperationUpgrade   OperationType = "Upgrade"
)

// OperationState is how far an operation is.
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Unsupported
type OperationState string

// Operation states.
const (
	OperationRunning     OperationState = "Running"
	OperationSucceeded   OperationState = "Succeeded"
	OperationFailed      OperationState = "Failed"
	OperationUnsupported OperationState = "Unsupported"
)

// HostOperation is what a host did or does.
type HostOperation struct {
	// type of the operation.
	// +required
	Type OperationType `json:"type,omitempty"`
	// id of the operation: that of the claim, or of the request, it was for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// state of the operation.
	// +required
	State OperationState `json:"state,omitempty"`
	// step that runs or failed.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Step string `json:"step,omitempty"`
	// message explains a failure, without secrets. The full output stays on the
	// host.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// startedAt by the host's clock.
	// +optional
	StartedAt metav1.Time `json:"startedAt,omitempty,omitzero"`
	// finishedAt by the host's clock.
	// +optional
	FinishedAt metav1.Time `json:"finishedAt,omitempty,omitzero"`
}
