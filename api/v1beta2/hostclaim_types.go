package v1beta2

// ClaimPhase is the phase of a claim.
// +kubebuilder:validation:Enum=Reserved;Bound;Held;Releasing
type ClaimPhase string

// Claim phases.
const (
	// ClaimReserved: the host is reserved for the first control-plane machine of a
	// cluster, because its address is the control plane endpoint.
	ClaimReserved ClaimPhase = "Reserved"
	// ClaimBound: a machine uses the host.
	ClaimBound ClaimPhase = "Bound"
	// ClaimHeld: the machine is deleted, and the host is not reset until an administrator
	// sets the phase to Releasing.
	ClaimHeld ClaimPhase = "Held"
	// ClaimReleasing: the machine is being deleted or is deleted. The host is reset as
	// soon as it is connected, and is not available until it is clean.
	ClaimReleasing ClaimPhase = "Releasing"
)

// HostClaim records which Machine or Cluster uses a host. Only package internal/claim
// writes claims.
// +kubebuilder:validation:XValidation:rule="self.phase == 'Reserved' || (has(self.machineName) && has(self.id))",message="a claim that is Bound, Held or Releasing names its machine and id"
type HostClaim struct {
	// id of the claim. The ElementalMachine has the same ID in spec.hostRef.claimID. The
	// agent runs a bootstrap and a reset at most once for each ID.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// clusterName is the name of the Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`
	// machineName is the name of the Machine (not of the ElementalMachine). It is blank
	// in phase Reserved.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	MachineName string `json:"machineName,omitempty"`
	// phase of the claim: Reserved for a control plane endpoint, Bound to a machine,
	// Held after its machine was deleted, or Releasing: the host is to be
	// reset. An administrator may change Held to Releasing.
	// +required
	Phase ClaimPhase `json:"phase,omitempty"`
	// role of the machine in its cluster.
	// +optional
	Role ClaimRole `json:"role,omitempty"`
	// erase is the method to erase the data disks after the reset, copied from
	// spec.release.eraseDataDisks of the ElementalMachine. If blank, data disks are not
	// erased.
	// +optional
	Erase EraseMethod `json:"erase,omitempty"`
	// adoption says what the Node on the host must be, for the machine to take it over. It is
	// absent if the host is bootstrapped, and after the Node was taken over. A claim that still
	// has it ends without a reset.
	// +optional
	Adoption *ClaimAdoption `json:"adoption,omitempty"`
}

// ClaimRole is the role of a machine in its cluster.
// +kubebuilder:validation:Enum=InitialControlPlane;ControlPlane;Worker
type ClaimRole string

// Claim roles.
const (
	// RoleInitialControlPlane: the machine that initializes the control plane.
	RoleInitialControlPlane ClaimRole = "InitialControlPlane"
	RoleControlPlane        ClaimRole = "ControlPlane"
	RoleWorker              ClaimRole = "Worker"
)

// IsControlPlane reports whether the machine belongs to the control plane.
func (r ClaimRole) IsControlPlane() bool {
	return r == RoleInitialControlPlane || r == RoleControlPlane
}

// EraseMethod is the method to erase data disks.
// +kubebuilder:validation:Enum=Zero;Discard
type EraseMethod string

// Erase methods.
const (
	// EraseZero overwrites all addressable bytes with zeros, and verifies samples.
	EraseZero EraseMethod = "Zero"
	// EraseDiscard makes the device discard its contents, securely if it supports that,
	// and verifies samples.
	EraseDiscard EraseMethod = "Discard"
)
