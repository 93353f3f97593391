package v1beta2

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalHostSpec is who the host is and what it is for.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.hostID) || (has(self.hostID) && self.hostID == oldSelf.hostID)",message="hostID is the host's for ever; create another ElementalHost"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.claim) || (has(self.hostname) == has(oldSelf.hostname) && (!has(self.hostname) || self.hostname == oldSelf.hostname))",message="hostname can't change while the host is claimed"
type ElementalHostSpec struct {
	// hostID is given by the provider at enrolment, for ever. Logs name it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	HostID string `json:"hostID,omitempty"`

	// identity is the host's credential. Clearing it shuts the host out, at once; it
	// can enrol with a token again, as another host.
	// +optional
	Identity *HostIdentity `json:"identity,omitempty"`

	// registrationRef names the ElementalRegistration the host came by.
	// +optional
	RegistrationRef *LocalReference `json:"registrationRef,omitempty"`

	// approval lets the host in, or keeps it out. A pending host may only
	// poll and say what it is; a rejected one is refused at once, on open connections too.
	// +optional
	// +kubebuilder:default=Pending
	Approval Approval `json:"approval,omitempty"`

	// claim is what the host is for; absent while it is free. The provider
	// writes it, and nothing else makes a host run or reset anything.
	// +optional
	Claim *HostClaim `json:"claim,omitempty"`

	// cordon keeps new machines off the host; what runs on it goes on.
	// +optional
	Cordon *HostCordon `json:"cordon,omitempty"`

	// hostname the agent sets before a bootstrap; the object's name when not
	// given.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`
}

// HostIdentity is the key that the host authenticates with.
type HostIdentity struct {
	// keyFingerprint is "sha256:" and the hex SHA-256 of the DER-encoded Subject
	// Public Key Info.
	// +required
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	KeyFingerprint string `json:"keyFingerprint,omitempty"`

	// generation counts the keys the host has had, from 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Generation int64 `json:"generation,omitempty"`
}

// Approval is an administrator's decision about a host.
// +kubebuilder:validation:Enum=Pending;Approved;Rejected
type Approval string

// Approvals.
const (
	ApprovalPending  Approval = "Pending"
	ApprovalApproved Approval = "Approved"
	ApprovalRejected Approval = "Rejected"
)

// ClaimPhase is how far a claim is.
// +kubebuilder:validation:Enum=Reserved;Bound;Releasing
type ClaimPhase string

// Claim phases.
const (
	// ClaimReserved: kept for the first control-plane machine of a cluster whose
	// endpoint is this host's address.
	ClaimReserved ClaimPhase = "Reserved"
	// ClaimBound: the host is a machine's.
	ClaimBound ClaimPhase = "Bound"
	// ClaimReleasing: the machine is deleted; the host is to be reset, whenever
	// it is heard of, and is offered to nobody until it is clean.
	ClaimReleasing ClaimPhase = "Releasing"
)

// HostClaim is what a host is for. Only package internal/claim makes and
// changes claims.
// +kubebuilder:validation:XValidation:rule="self.phase == 'Reserved' || (has(self.machineName) && has(self.id))",message="a claim that is Bound or Releasing names its machine and id"
type HostClaim struct {
	// id of the claim; the ElementalMachine carries the same in spec.hostRef.
	// The agent runs a bootstrap and a reset at most once for each id.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// clusterName is the Cluster's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`
	// machineName is the name of the Machine (not the ElementalMachine).
	// +optional
	// +kubebuilder:validation:MaxLength=253
	MachineName string `json:"machineName,omitempty"`
	// phase of the claim.
	// +required
	Phase ClaimPhase `json:"phase,omitempty"`
}

// HostCordon keeps new machines off a host.
type HostCordon struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// ElementalHostStatus is what the host reports and what follows from it.
type ElementalHostStatus struct {
	// inventory is what the host says of itself.
	// +optional
	Inventory *HostInventory `json:"inventory,omitempty"`

	// addresses of the host; the first InternalIP is that of the default route's
	// interface.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// agent that runs on the host.
	// +optional
	Agent *HostAgent `json:"agent,omitempty"`

	// connection of the agent; written when it changes only.
	// +optional
	Connection *HostConnection `json:"connection,omitempty"`

	// cleanliness is what the agent found of former nodes when it last looked:
	// at its start, before a bootstrap and after a reset.
	// +optional
	Cleanliness *HostCleanliness `json:"cleanliness,omitempty"`

	// operations holds the last operation of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Operations []HostOperation `json:"operations,omitempty"`

	// conditions of the host: Ready, Connected, Approved, Available, Clean,
	// Bootstrapped, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

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
// +kubebuilder:validation:Enum=Bootstrap;Reset
type OperationType string

// Operation types.
const (
	OperationBootstrap OperationType = "Bootstrap"
	OperationReset     OperationType = "Reset"
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
	// id of the operation: the id of the claim it was for.
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

// ElementalHost is a machine that runs the elemental agent.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalhosts,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.claim.clusterName"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".spec.claim.machineName"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Connected",type="string",JSONPath=".status.conditions[?(@.type=='Connected')].status"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address"
// +kubebuilder:printcolumn:name="OS",type="string",priority=1,JSONPath=".status.inventory.os.prettyName"
// +kubebuilder:printcolumn:name="Key",type="string",priority=1,JSONPath=".spec.identity.keyFingerprint"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Ready')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalHost struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +optional
	Spec ElementalHostSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalHostStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (h *ElementalHost) GetConditions() []metav1.Condition { return h.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (h *ElementalHost) SetConditions(conditions []metav1.Condition) {
	h.Status.Conditions = conditions
}

// Operation returns the host's last operation of that type, or nil if there was
// none or it was for another id.
func (h *ElementalHost) Operation(t OperationType, id string) *HostOperation {
	for i := range h.Status.Operations {
		if op := &h.Status.Operations[i]; op.Type == t && op.ID == id {
			return op
		}
	}
	return nil
}

// Supports reports whether the host's agent said that it can do this.
func (h *ElementalHost) Supports(t OperationType) bool {
	return h.Status.Agent != nil && slices.Contains(h.Status.Agent.Capabilities, string(t))
}

// ElementalHostList is a list of ElementalHosts.
// +kubebuilder:object:root=true
type ElementalHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalHost `json:"items"`
}
