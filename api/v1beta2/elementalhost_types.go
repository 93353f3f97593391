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
	// can ask to be adopted again, as another host.
	// +optional
	Identity *HostIdentity `json:"identity,omitempty"`

	// lock shuts out everybody who holds the host's key, because two did. The
	// provider sets it; remove it once one copy is destroyed.
	// +optional
	Lock *HostLock `json:"lock,omitempty"`

	// registrationRef names the ElementalRegistration the host came by.
	// +optional
	RegistrationRef *LocalReference `json:"registrationRef,omitempty"`

	// approval lets the host in, or keeps it out. A pending host may only
	// poll and say what it is; a rejected one is refused at once, on open connections too.
	// +optional
	// +kubebuilder:default=Pending
	Approval Approval `json:"approval,omitempty"`

	// pendingReason is why the provider left the decision to an administrator.
	// +optional
	PendingReason PendingReason `json:"pendingReason,omitempty"`

	// claim is what the host is for; absent while it is free. The provider
	// writes it, and nothing else makes a host run or reset anything.
	// +optional
	Claim *HostClaim `json:"claim,omitempty"`

	// cordon keeps new machines off the host; what runs on it goes on.
	// +optional
	Cordon *HostCordon `json:"cordon,omitempty"`

	// maintenance keeps the host's Node and data as they are while somebody works
	// on the host: nothing is bootstrapped or reset, nothing that the host does is
	// held against it, and Cluster API does not remediate its Machine.
	// +optional
	Maintenance *HostMaintenance `json:"maintenance,omitempty"`

	// quarantine keeps new machines off a host that failed repeatedly. The
	// provider sets and ends it; remove it to end it now.
	// +optional
	Quarantine *HostQuarantine `json:"quarantine,omitempty"`

	// fence gives up a host that is not to be trusted any more, because it is dead
	// or stolen: its Machine is deleted at once, and its key is good for nothing
	// but having the host reset, should it ever return. Removing the fence lets a
	// host that was reset be offered again.
	// +optional
	Fence *HostFence `json:"fence,omitempty"`

	// reboot asks for one reboot.
	// +optional
	Reboot *HostReboot `json:"reboot,omitempty"`

	// osUpgrade asks for one upgrade of the operating system's image, on hosts
	// whose agent drives the elemental CLI. A host that is a Node is upgraded
	// only while it is in maintenance.
	// +optional
	OSUpgrade *HostOSUpgrade `json:"osUpgrade,omitempty"`

	// hostname the agent sets before a bootstrap; the object's name when not
	// given.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`
}

// ClaimPhase is how far a claim is.
// +kubebuilder:validation:Enum=Reserved;Bound;Held;Releasing
type ClaimPhase string

// Claim phases.
const (
	// ClaimReserved: kept for the first control-plane machine of a cluster whose
	// endpoint is this host's address.
	ClaimReserved ClaimPhase = "Reserved"
	// ClaimBound: the host is a machine's.
	ClaimBound ClaimPhase = "Bound"
	// ClaimHeld: the machine is deleted, but its release policy keeps the host as it
	// is, with all that runs on it, until an administrator sets the phase to
	// Releasing.
	ClaimHeld ClaimPhase = "Held"
	// ClaimReleasing: the machine is deleted; the host is to be reset, whenever
	// it is heard of, and is offered to nobody until it is clean.
	ClaimReleasing ClaimPhase = "Releasing"
)

// HostClaim is what a host is for. Only package internal/claim makes and
// changes claims.
// +kubebuilder:validation:XValidation:rule="self.phase == 'Reserved' || (has(self.machineName) && has(self.id))",message="a claim that is Bound, Held or Releasing names its machine and id"
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
	// role of the machine in its cluster.
	// +optional
	Role ClaimRole `json:"role,omitempty"`
	// erase the data disks after the reset, taken from the machine's release
	// policy.
	// +optional
	Erase EraseMethod `json:"erase,omitempty"`
}

// ClaimRole is what a machine is in its cluster.
// +kubebuilder:validation:Enum=InitialControlPlane;ControlPlane;Worker
type ClaimRole string

// Claim roles.
const (
	// RoleInitialControlPlane: the machine that the control plane began on.
	RoleInitialControlPlane ClaimRole = "InitialControlPlane"
	RoleControlPlane        ClaimRole = "ControlPlane"
	RoleWorker              ClaimRole = "Worker"
)

// IsControlPlane tells whether the role is one of the control plane.
func (r ClaimRole) IsControlPlane() bool {
	return r == RoleInitialControlPlane || r == RoleControlPlane
}

// EraseMethod is how data disks are erased.
// +kubebuilder:validation:Enum=Zero;Discard
type EraseMethod string

// Erase methods.
const (
	// EraseZero writes zeros over every byte that the device addresses, and reads
	// samples back.
	EraseZero EraseMethod = "Zero"
	// EraseDiscard tells the device to drop its contents, securely where it can
	// do so, and reads samples back.
	EraseDiscard EraseMethod = "Discard"
)

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

	// endpoint is what the host says of its cluster's endpoint.
	// +optional
	Endpoint *HostEndpoint `json:"endpoint,omitempty"`

	// erasure reports the last erasure of data disks.
	// +optional
	Erasure *HostErasure `json:"erasure,omitempty"`

	// failures counts bootstraps that failed in a row.
	// +optional
	Failures *HostFailures `json:"failures,omitempty"`

	// conditions of the host: Ready, Connected, Approved, Available, Clean,
	// Bootstrapped, ClockSynchronized, AgentCurrent, MachineExists, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
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
