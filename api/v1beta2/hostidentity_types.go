package v1beta2

// HostIdentity is the key that the host authenticates with. Fingerprints are
// "sha256:" and the hex SHA-256 of the DER-encoded Subject Public Key Info.
// +kubebuilder:validation:XValidation:rule="has(self.keyFingerprint) || has(self.match)",message="an identity has a keyFingerprint, or a match that tells who may become the host"
type HostIdentity struct {
	// keyFingerprint names the key in use. Blank on a host that was declared in
	// advance and that no machine has become yet; clearing it, with a match given,
	// lets one machine become the host anew.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	KeyFingerprint string `json:"keyFingerprint,omitempty"`

	// nextKeyFingerprint names the key that a rotation under way changes to. Both
	// are good until the next one has been used.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	NextKeyFingerprint string `json:"nextKeyFingerprint,omitempty"`

	// formerKeyFingerprint names the key before. Whoever still uses it is a copy.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	FormerKeyFingerprint string `json:"formerKeyFingerprint,omitempty"`

	// match tells which machine may become this host.
	// +optional
	Match *IdentityMatch `json:"match,omitempty"`

	// generation counts the keys the host has had, from 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Generation int64 `json:"generation,omitempty"`
}

// IdentityMatch tells which machine may become a host that was declared in
// advance. A serial number is what the machine says of itself, so a token is
// needed as well; a key proves itself.
// +kubebuilder:validation:XValidation:rule="has(self.serialNumber) != has(self.keyFingerprint)",message="give either serialNumber or keyFingerprint"
type IdentityMatch struct {
	// serialNumber is the SMBIOS serial number.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	SerialNumber string `json:"serialNumber,omitempty"`
	// keyFingerprint of the machine's key, as `elemental-agent status` shows it.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	KeyFingerprint string `json:"keyFingerprint,omitempty"`
}

// LockReason says why a host is locked.
// +kubebuilder:validation:Enum=Cloned
type LockReason string

// LockCloned means that two machines use one identity, of which one is a copy.
const LockCloned LockReason = "Cloned"

// HostLock shuts out everybody who holds a host's key.
type HostLock struct {
	// reason for the lock.
	// +required
	Reason LockReason `json:"reason,omitempty"`
	// message tells what was noticed.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// PendingReason is why a host has to be approved by an administrator.
// +kubebuilder:validation:Enum=Readopted;AmbiguousHardware
type PendingReason string

// Pending reasons.
const (
	// PendingReadopted: the host was enrolled before and came back without being
	// known, as after a rebuild of the management cluster or its deletion here.
	PendingReadopted PendingReason = "Readopted"
	// PendingAmbiguous: several hosts that were declared in advance match it.
	PendingAmbiguous PendingReason = "AmbiguousHardware"
)

// Approval is an administrator's decision about a host.
// +kubebuilder:validation:Enum=Pending;Approved;Rejected
type Approval string

// Approvals.
const (
	ApprovalPending  Approval = "Pending"
	ApprovalApproved Approval = "Approved"
	ApprovalRejected Approval = "Rejected"
)
