package v1beta2

// Condition types. Every condition has a reason that a person can act on.
const (
	// ReadyCondition summarizes the state of an object, including its deletion. Cluster
	// API copies it to the Cluster or Machine as the condition InfrastructureReady.
	ReadyCondition = "Ready"
	// ControlPlaneEndpointReadyCondition (ElementalCluster): the control plane endpoint
	// is set and nothing is known to be wrong with it.
	ControlPlaneEndpointReadyCondition = "ControlPlaneEndpointReady"
	// ControlPlaneEndpointFollowedCondition (ElementalCluster): everything in the
	// management cluster, in the workload cluster and on its hosts uses the current
	// endpoint. It is absent unless the endpoint is the address of a host.
	ControlPlaneEndpointFollowedCondition = "ControlPlaneEndpointFollowed"
	// TunnelReadyCondition (ElementalCluster): the manager reaches an API server of the
	// cluster through a host's tunnel. It is absent unless the endpoint is of type Tunnel or
	// spec.access is set.
	TunnelReadyCondition = "TunnelReady"
	// AccessReadyCondition (ElementalCluster): the workload cluster has the bindings of
	// spec.access. It is absent without spec.access, once the bindings are deleted.
	AccessReadyCondition = "AccessReady"
	// EtcdSnapshotsReadyCondition (ElementalCluster): the snapshot of etcd that was due last
	// is on a host. It is absent without spec.etcdSnapshots.
	EtcdSnapshotsReadyCondition = "EtcdSnapshotsReady"
	// RestoredCondition (ElementalEtcdRestore): etcd has the data of the snapshot, and Cluster
	// API goes on with the cluster.
	RestoredCondition = "Restored"
	// EtcdSnapshotsUploadedCondition (ElementalCluster): the last snapshot of etcd is at the
	// destination. It is absent without spec.etcdSnapshots.destination.
	EtcdSnapshotsUploadedCondition = "EtcdSnapshotsUploaded"
	// HostClaimedCondition (ElementalMachine): the machine has claimed a host.
	HostClaimedCondition = "HostClaimed"
	// BootstrappedCondition (ElementalMachine, ElementalHost): the bootstrap data ran
	// successfully on the host.
	BootstrappedCondition = "Bootstrapped"
	// KubernetesUpToDateCondition (ElementalMachine): the Node has the Machine's version of
	// Kubernetes. It is absent until the version changes for the first time.
	KubernetesUpToDateCondition = "KubernetesUpToDate"
	// BundlesReadyCondition (ElementalKubernetesRelease): the manager serves all bundles of
	// the release that hosts may get from it.
	BundlesReadyCondition = "BundlesReady"
	// ConnectedCondition (ElementalHost): the agent is connected, or was within the
	// grace period.
	ConnectedCondition = "Connected"
	// ApprovedCondition (ElementalHost): the registration or an administrator has
	// approved the host.
	ApprovedCondition = "Approved"
	// CleanCondition (ElementalHost): the agent found no leftovers of a former node.
	CleanCondition = "Clean"
	// AvailableCondition (ElementalHost): machines can claim the host.
	AvailableCondition = "Available"
	// KeyAcceptedCondition (ElementalHost): present and False while the machine with the
	// host's key belongs to another ElementalHost.
	KeyAcceptedCondition = "KeyAccepted"
	// MachineExistsCondition (ElementalHost): the Machine that has claimed the host
	// exists. It is absent while no Machine has claimed the host.
	MachineExistsCondition = "MachineExists"
	// PreparedCondition (ElementalHost): the host has the programs of Kubernetes that
	// kubeadm needs. It influences nothing.
	PreparedCondition = "Prepared"
	// ClockSynchronizedCondition (ElementalHost): the host's clock differs from the
	// manager's by less than a minute.
	ClockSynchronizedCondition = "ClockSynchronized"
	// AgentCurrentCondition (ElementalHost): the last update of the agent succeeded. It
	// is absent if the agent was never updated.
	AgentCurrentCondition = "AgentCurrent"
	// CertificatesValidCondition (ElementalHost, ElementalCluster): no certificate of the control
	// plane ends soon; for a cluster, also none in its kubeconfig. It is absent until a
	// control-plane host has reported its certificates.
	CertificatesValidCondition = "CertificatesValid"
	// RebootedCondition (ElementalRemediation): the host was rebooted.
	RebootedCondition = "Rebooted"
	// EndpointReadyCondition (ElementalRegistration): the server URL for hosts is known.
	EndpointReadyCondition = "EndpointReady"
	// TokenValidCondition (ElementalRegistration): hosts can enrol with a token.
	TokenValidCondition = "TokenValid"
	// AgentBinariesReadyCondition (ElementalRegistration): the manager serves the pinned
	// agent binaries. It is absent while none is pinned.
	AgentBinariesReadyCondition = "AgentBinariesReady"
	// SuccessorReachedCondition (ElementalRegistration): all hosts know the successor in
	// spec.successor and have reached it. Absent without a successor.
	SuccessorReachedCondition = "SuccessorReached"
)

// Reasons of ElementalCluster.
const (
	EndpointFromUserReason          = "SetByUser"
	EndpointFromHostReason          = "SetFromHost"
	WaitingForOwnerReason           = "WaitingForOwner"
	ReferenceMismatchReason         = "ReferenceMismatch"
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
	AddressAnnouncedReason          = "AddressAnnounced"
	VIPOutsideSubnetsReason         = "VIPOutsideSubnets"
	InterfaceMissingReason          = "InterfaceMissing"
	DistributionUnknownReason       = "DistributionUnknown"
	ImageNotAllowedReason           = "ImageNotAllowed"
	EndpointFromTunnelReason        = "SetFromTunnel"
	EndpointNameTakenReason         = "EndpointNameTaken"
	EndpointNameForeignReason       = "EndpointNameForeign"
	EndpointPortReason              = "EndpointPortInvalid"
	TunnelReadyReason               = "TunnelReady"
	WaitingForControlPlaneReason    = "WaitingForControlPlane"
	NoTunnelReason                  = "NoTunnel"
	APIServerRefusesReason          = "APIServerRefuses"
	AgentTooOldReason               = "AgentTooOld"
	BindingsAppliedReason           = "BindingsApplied"
	ClusterUnreachableReason        = "ClusterUnreachable"
	ClusterRoleMissingReason        = "ClusterRoleMissing"
	BindingNameTakenReason          = "BindingNameTaken"
	BindingsRefusedReason           = "BindingsRefused"
	EtcdSnapshotTakenReason         = "SnapshotTaken"
	EtcdSnapshotPendingReason       = "SnapshotPending"
	EtcdSnapshotOverdueReason       = "SnapshotOverdue"
	EtcdSnapshotFailedReason        = "SnapshotFailed"
	EtcdSnapshotUploadedReason      = "SnapshotUploaded"
	EtcdUploadPendingReason         = "UploadPending"
	EtcdUploadFailedReason          = "UploadFailed"
	EtcdUploadOverdueReason         = "UploadOverdue"
	DestinationUnusableReason       = "DestinationUnusable"
	// BindingRestoredReason and BindingsDeletedReason are reasons of Events only.
	BindingRestoredReason = "BindingRestored"
	BindingsDeletedReason = "BindingsDeleted"
)

// Reasons of ElementalMachine.
const (
	WaitingForInfrastructureReason = "WaitingForClusterInfrastructure"
	WaitingForBootstrapDataReason  = "WaitingForBootstrapData"
	HostClaimedReason              = "HostClaimed"
	HostMissingReason              = "HostMissing"
	NoHostInFailureDomainReason    = "NoHostInFailureDomain"
	MachineReplacedReason          = "MachineReplaced"
	BootstrappingReason            = "Bootstrapping"
	BootstrapSucceededReason       = "BootstrapSucceeded"
	BootstrapFailedReason          = "BootstrapFailed"
	ProvisionedReason              = "Provisioned"
	WaitingForResetReason          = "WaitingForHostReset"
	ReleasedReason                 = "HostReleased"
	HostSilentReason               = "HostSilent"
	// DeletionResumedReason is the reason of an Event only.
	DeletionResumedReason = "DeletionResumed"
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
	PreparedReason        = "Prepared"
	NotPreparedReason     = "NotPrepared"
	// PreparedByBundleReason: the bootstrap installs what is missing.
	PreparedByBundleReason = "PreparedByBundle"
	AvailableReason        = "Available"
	// AdoptableReason: the host runs a Node that no Machine has taken over yet.
	AdoptableReason = "Adoptable"
	// AdoptedReason is a reason of Events only.
	AdoptedReason     = "Adopted"
	ReservedReason    = "ReservedForCluster"
	ClaimedReason     = "Claimed"
	NotClaimedReason  = "NotClaimed"
	ResettingReason   = "Resetting"
	ResetFailedReason = "ResetFailed"
	// AlreadyResetReason: the host was reset for its claim before the management cluster was restored
	// from an older backup, which has the host bound.
	AlreadyResetReason    = "AlreadyReset"
	WaitingForMachineGone = "WaitingForMachineDeletion"
	CordonedReason        = "Cordoned"
	DeletingReason        = "Deleting"
	UnsupportedReason     = "OperationUnsupported"
	// DeclaredElsewhereReason: the machine with the host's key is another ElementalHost.
	DeclaredElsewhereReason = "DeclaredElsewhere"
	MachineFoundReason      = "MachineFound"
	MachineNotFoundReason   = "MachineNotFound"

	ReadoptedReason         = "Readopted"
	AmbiguousHardwareReason = "AmbiguousHardware"
	IdentityClonedReason    = "IdentityCloned"
	FencedReason            = "Fenced"
	MaintenanceReason       = "Maintenance"
	MaintenanceEndedReason  = "MaintenanceEnded"
	TunnelOpenedReason      = "TunnelOpened"
	TunnelLostReason        = "TunnelLost"
	// BundleStagedReason and BundleFailedReason are reasons of Events only.
	BundleStagedReason = "BundleStaged"
	BundleFailedReason = "BundleFailed"
	// LogReceivedReason and LogRequestEndedReason are reasons of Events only.
	LogReceivedReason       = "LogReceived"
	LogRequestEndedReason   = "LogRequestEnded"
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

// Reasons of granted hosts.
const (
	// HostGrantedReason: the host is an ElementalHost of another namespace.
	HostGrantedReason = "Granted"
	// HostReturningReason: the host goes back to its pool.
	HostReturningReason = "Returning"
	// HostReceivedReason and HostReturnedReason are reasons of Events only.
	HostReceivedReason = "Received"
	HostReturnedReason = "Returned"
)

// Reasons of ElementalHostGrant.
const (
	GrantFulfilledReason         = "Fulfilled"
	GrantWaitingReason           = "WaitingForHosts"
	GrantReturningReason         = "WaitingForReturn"
	GrantHostsMissingReason      = "HostsMissing"
	GrantNamespaceUnusableReason = "NamespaceUnusable"
)

// Reasons of CertificatesValid.
const (
	CertificatesValidReason    = "CertificatesValid"
	CertificatesExpiringReason = "CertificatesExpiring"
	CertificatesExpiredReason  = "CertificatesExpired"
	AuthorityExpiringReason    = "AuthorityExpiring"
	// KubeconfigExpiringReason: the certificate in the kubeconfig of the cluster ends soon, or
	// has ended.
	KubeconfigExpiringReason = "KubeconfigExpiring"
	// CertificatesRenewingReason: the only control-plane host renews its certificates.
	CertificatesRenewingReason      = "CertificatesRenewing"
	CertificateRenewalFailedReason  = "CertificateRenewalFailed"
	CertificateRenewalWaitingReason = "CertificateRenewalWaiting"
)

// Reasons of KubernetesUpToDate.
const (
	KubernetesUpToDateReason          = "UpToDate"
	UpgradeWaitingForReleaseReason    = "WaitingForRelease"
	UpgradeWaitingForControlPlane     = "WaitingForControlPlane"
	UpgradeHostNotConnectedReason     = "HostNotConnected"
	UpgradeHostInMaintenanceReason    = "HostInMaintenance"
	UpgradeStagingReason              = "Staging"
	UpgradeHeldReason                 = "Held"
	UpgradingReason                   = "Upgrading"
	UpgradeFailedReason               = "UpgradeFailed"
	UpgradeRolledBackReason           = "RolledBack"
	UpgradeNotPossibleReason          = "NotPossible"
	UpgradeWaitingForClusterAPIReason = "WaitingForClusterAPI"
	// ReplacementRefusedReason is the reason of an Event of a Machine only.
	ReplacementRefusedReason = "ReplacementRefused"
)

// Reasons of ElementalKubernetesRelease.
const (
	BundlesServedReason  = "BundlesServed"
	BundlesMissingReason = "BundlesMissing"
	// BundlesHashingReason: the manager has not looked at all of its files yet.
	BundlesHashingReason = "BundlesHashing"
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

// Reasons of ElementalEtcdRestore.
const (
	RestoreRefusedReason        = "Refused"
	RestoreNotConfirmedReason   = "NotConfirmed"
	RestoreWaitingForHostReason = "WaitingForHost"
	RestoringReason             = "Restoring"
	RestoredReason              = "Restored"
	RestoreFailedReason         = "RestoreFailed"
	RestoreLeftBrokenReason     = "NotServing"
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
	// HostsReachedReason and HostsNotReachedReason: all hosts have reached the successor, or not.
	HostsReachedReason    = "HostsReached"
	HostsNotReachedReason = "HostsNotReached"
	// SameManagementClusterReason: the successor is this management cluster, as after a move.
	SameManagementClusterReason = "SameManagementCluster"
)
