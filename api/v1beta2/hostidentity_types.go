package v1beta2

// HostIdentity is the key that the host authenticates with. A fingerprint is "sha256:"
// and the SHA-256 of the DER-encoded Subject Public Key Info, in hex.
// +kubebuilder:validation:XValidation:rule="has(self.keyFingerprint) || has(self.match)",message="an identity has a keyFingerprint, or a match that tells who may become the host"
type HostIdentity struct {
	// keyFingerprint of the current key. It is blank on a host that was declared in
	// advance and has not enrolled. If match is set, removing the fingerprint lets one
	// machine enrol as this host again.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	KeyFingerprint string `json:"keyFingerprint,omitempty"`

	// nextKeyFingerprint of the key that a rotation in progress changes to. Both keys
	// are valid until the next key has been used. The provider sets it.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	NextKeyFingerprint string `json:"nextKeyFingerprint,omitempty"`

	// formerKeyFingerprint of the previous key. A machine that still uses it is a copy.
	// The provider sets it.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	FormerKeyFingerprint string `json:"formerKeyFingerprint,omitempty"`

	// match identifies the machine that may enrol as this host, if the host was declared
	// in advance.
	// +optional
	Match *IdentityMatch `json:"match,omitempty"`

	// generation is the number of keys that the host has had, including the current one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Generation int64 `json:"generation,omitempty"`
}

// IdentityMatch identifies the machine that may enrol as a host that was declared in
// advance. A machine proves that it has the key, but it only claims its serial number,
// so a serial number also needs a token.
// +kubebuilder:validation:XValidation:rule="has(self.serialNumber) != has(self.keyFingerprint)",message="give either serialNumber or keyFingerprint"
type IdentityMatch struct {
	// serialNumber is the SMBIOS serial number of the machine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	SerialNumber string `json:"serialNumber,omitempty"`
	// keyFingerprint of the machine's key, as `elemental-agent status` prints it.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	KeyFingerprint string `json:"keyFingerprint,omitempty"`
}

// LockReason is the reason for a lock.
// +kubebuilder:validation:Enum=Cloned
type LockReason string

// LockCloned means that two machines use the same key, so one is a copy.
const LockCloned LockReason = "Cloned"

// HostLock rejects all requests signed with a host's key.
type HostLock struct {
	// reason for the lock.
	// +required
	Reason LockReason `json:"reason,omitempty"`
	// message describes how the manager detected the second machine.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// PendingReason is the reason why an administrator must approve a host.
// +kubebuilder:validation:Enum=Readopted;Returned;AmbiguousHardware
type PendingReason string

// Pending reasons.
const (
	// PendingReadopted: the host enrolled before and is not known, for example after a
	// rebuild of the management cluster or after its ElementalHost was deleted. It has no
	// token.
	PendingReadopted PendingReason = "Readopted"
	// PendingReturned: likewise, but the host has a token.
	PendingReturned PendingReason = "Returned"
	// PendingAmbiguous: several hosts that were declared in advance match the machine.
	PendingAmbiguous PendingReason = "AmbiguousHardware"
)

// Approval decides whether a host may be used.
// +kubebuilder:validation:Enum=Pending;Approved;Rejected
type Approval string

// Approvals.
const (
	ApprovalPending  Approval = "Pending"
	ApprovalApproved Approval = "Approved"
	ApprovalRejected Approval = "Rejected"
)
