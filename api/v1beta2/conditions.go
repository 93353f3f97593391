package v1beta2

// Condition types. Every condition has a reason that a person can act on.
const (
	// ReadyCondition sums up the object for its whole life, deletion included.
	// Cluster API mirrors it to Cluster and Machine as InfrastructureReady.
	ReadyCondition = "Ready"

	// ControlPlaneEndpointReadyCondition (ElementalCluster): the cluster has an
	// address for its API server.
	ControlPlaneEndpointReadyCondition = "ControlPlaneEndpointReady"

	// ControlPlaneEndpointFollowedCondition (ElementalCluster): everything that
	// names the endpoint names the one that is: in the management cluster, in the
	// workload cluster and on its hosts. Absent while the endpoint is not a host's
	// address.
	ControlPlaneEndpointFollowedCondition = "ControlPlaneEndpointFollowed"

	// HostClaimedCondition (ElementalMachine): a host belongs to the machine.
	HostClaimedCondition = "HostClaimed"
	// BootstrappedCondition (ElementalMachine, ElementalHost): the bootstrap
	// data ran on the host and ended well.
	BootstrappedCondition = "Bootstrapped"

	// ConnectedCondition (ElementalHost): the agent holds a connection, or did
	// within the grace time.
	ConnectedCondition = "Connected"
	// ApprovedCondition (ElementalHost): an administrator or the registration
	// let the host in.
	ApprovedCondition = "Approved"
	// CleanCondition (ElementalHost): nothing of a former node is left.
	CleanCondition = "Clean"
	// AvailableCondition (ElementalHost): the host may be offered to machines.
	AvailableCondition = "Available"

	// MachineExistsCondition (ElementalHost): the Machine that the host is bound
	// to exists. Absent while the host is bound to none.
	MachineExistsCondition = "MachineExists"

	// ClockSynchronizedCondition (ElementalHost): the host's clock is within a
	// minute of the manager's.
	ClockSynchronizedCondition = "ClockSynchronized"
	// AgentCurrentCondition (ElementalHost): the agent is of the version that its
	// registration pins. Absent while none is pinned.
	AgentCurrentCondition = "AgentCurrent"

	// RebootedCondition (ElementalRemediation): the host was rebooted.
	RebootedCondition = "Rebooted"

	// EndpointReadyCondition (ElementalRegistration): there is a URL and a CA
	// for hosts to use.
	EndpointReadyCondition = "EndpointReady"
	// TokenValidCondition (ElementalRegistration): there is a token that hosts
	// can still enrol with.
	TokenValidCondition = "TokenValid"
	// AgentBinariesReadyCondition (ElementalRegistration): the manager has the
	// agents that are pinned. Absent while none is pinned.
	AgentBinariesReadyCondition = "AgentBinariesReady"
)

// Reasons of ElementalCluster.
const (
	EndpointFromUserReason          = "SetByUser"
	EndpointFromHostReason          = "SetFromHost"
	WaitingForOwnerReason           = "WaitingForOwner"
	WaitingForControlPlaneRefReason = "WaitingForControlPlaneRef"
	TemplateNotFoundReason          = "MachineTemplateNotFound"
	NoHostReason                    = "NoSuitableHost"
	HostReservedReason              = "HostReserved"
	EndpointRequiredReason          = "EndpointRequired"
	EndpointUnreachableReason       = "EndpointUnreachable"
	EndpointUnobservedReason        = "EndpointUnobserved"
	EndpointMovingReason            = "EndpointMoving"
	EndpointMovedReason             = "EndpointMoved"
	EndpointFollowedReason          = "Followed"
	NoMoveCandidateReason           = "NoMoveCandidate"
	AddressChangedReason            = "AddressChanged"
	AddressNotCoveredReason         = "AddressNotCovered"
	EndpointFromVIPReason           = "SetFromVIP"
	WaitingForAddressReason         = "WaitingForAddress"
	VIPInUseReason                  = "VIPInUse"
	VIPOutsideSubnetsReason         = "VIPOutsideSubnets"
	InterfaceMissingReason          = "InterfaceMissing"
	DistributionUnknownReason       = "DistributionUnknown"
)

// Reasons of ElementalMachine.
const (
	WaitingForInfrastructureReason = "WaitingForClusterInfrastructure"
	WaitingForBootstrapDataReason  = "WaitingForBootstrapData"
	HostClaimedReason              = "HostClaimed"
	HostMissingReason              = "HostMissing"
	BootstrappingReason            = "Bootstrapping"
	BootstrapSucceededReason       = "BootstrapSucceeded"
	BootstrapFailedReason          = "BootstrapFailed"
	ProvisionedReason              = "Provisioned"
	WaitingForResetReason          = "WaitingForHostReset"
	ReleasedReason                 = "HostReleased"
	HostSilentReason               = "HostSilent"
)

// Reasons of ElementalHost.
const (
	ConnectedReason       = "AgentConnected"
	DisconnectedReason    = "AgentDisconnected"
	NeverConnectedReason  = "AgentNeverConnected"
	ApprovedReason        = "Approved"
	PendingApprovalReason = "PendingApproval"
	RejectedReason        = "Rejected"
	CleanReason           = "VerifiedClean"
	InUseReason           = "InUse"
	LeftoversReason       = "LeftoversFound"
	NotReportedReason     = "NotReported"
	AvailableReason       = "Available"
	ReservedReason        = "ReservedForCluster"
	ClaimedReason         = "Claimed"
	NotClaimedReason      = "NotClaimed"
	ResettingReason       = "Resetting"
	ResetFailedReason     = "ResetFailed"
	WaitingForMachineGone = "WaitingForMachineDeletion"
	CordonedReason        = "Cordoned"
	DeletingReason        = "Deleting"
	UnsupportedReason     = "OperationUnsupported"
	MachineFoundReason    = "MachineFound"
	MachineNotFoundReason = "MachineNotFound"

	ReadoptedReason         = "Readopted"
	AmbiguousHardwareReason = "AmbiguousHardware"
	IdentityClonedReason    = "IdentityCloned"
	FencedReason            = "Fenced"
	MaintenanceReason       = "Maintenance"
	MaintenanceEndedReason  = "MaintenanceEnded"
	QuarantinedReason       = "Quarantined"
	QuarantineEndedReason   = "QuarantineEnded"
	ResetHeldReason         = "ResetHeld"
	ResetPreventedReason    = "ResetPrevented"
	ClockSynchronizedReason = "ClockSynchronized"
	ClockSkewedReason       = "ClockSkewed"
	AgentCurrentReason      = "AgentCurrent"
	AgentUpdatingReason     = "AgentUpdating"
	AgentUpdateFailedReason = "AgentUpdateFailed"
)

// Reasons of ElementalRemediation.
const (
	RebootRequestedReason  = "RebootRequested"
	RebootedReason         = "Rebooted"
	RebootImpossibleReason = "RebootImpossible"
	RebootFailedReason     = "RebootFailed"
	RecoveringReason       = "Recovering"
	SiteDarkReason         = "SiteDark"
	ReplacingReason        = "Replacing"
	NoReplacementReason    = "NoReplacement"
	RemediatedReason       = "Remediated"
)

// Reasons of ElementalRegistration.
const (
	EndpointUnknownReason = "EndpointUnknown"
	PublishedReason       = "Published"
	TokenUsableReason     = "Usable"
	TokenExpiredReason    = "Expired"
	TokenUsedUpReason     = "UsedUp"
	BinariesServedReason  = "BinariesServed"
	BinariesMissingReason = "BinariesMissing"
)
