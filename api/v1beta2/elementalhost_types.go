package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ElementalHostSpec is the identity of a host and its desired state.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.hostID) || (has(self.hostID) && self.hostID == oldSelf.hostID)",message="hostID is the host's for ever; create another ElementalHost"
// +kubebuilder:validation:XValidation:rule="!(has(self.grantedTo) && has(self.grantedFrom))",message="a granted host can't be granted on"
// +kubebuilder:validation:XValidation:rule="!(has(self.grantedTo) && has(self.claim))",message="a host that is granted to another namespace has no claim here"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.claim) || (has(self.hostname) == has(oldSelf.hostname) && (!has(self.hostname) || self.hostname == oldSelf.hostname))",message="hostname can't change while the host is claimed"
// +kubebuilder:validation:XValidation:rule="!has(self.adoption) || has(oldSelf.adoption) || !has(self.claim)",message="a host that a machine has claimed can't be declared for adoption"
type ElementalHostSpec struct {
	// hostID identifies the host in logs. The provider sets it when the host enrols, and
	// it never changes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	HostID string `json:"hostID,omitempty"`

	// identity is the key that the host authenticates with. The provider sets it when
	// the host enrols. Removing it revokes the host's access at once; the host can then
	// only request re-adoption, which makes it another ElementalHost.
	// +optional
	Identity *HostIdentity `json:"identity,omitempty"`

	// lock rejects all requests signed with the host's key. The provider sets it when
	// two machines use the same key. Destroy the copy, then remove the lock.
	// +optional
	Lock *HostLock `json:"lock,omitempty"`

	// registrationRef refers to the ElementalRegistration that the host enrolled with.
	// The provider sets it.
	// +optional
	RegistrationRef *LocalReference `json:"registrationRef,omitempty"`

	// approval decides whether the host may be used. A Pending host may only connect and
	// report facts. A Rejected host is refused at once, also on open connections. The
	// provider sets it when the host enrols, as spec.approval of the
	// ElementalRegistration says; administrators change it. Defaults to Pending.
	// +optional
	// +kubebuilder:default=Pending
	Approval Approval `json:"approval,omitempty"`

	// pendingReason is the reason why an administrator must approve the host. The
	// provider sets it.
	// +optional
	PendingReason PendingReason `json:"pendingReason,omitempty"`

	// claim says which Machine or Cluster uses the host. It is absent while the host is
	// free. The provider writes it. A host runs bootstrap data or resets itself only
	// because of its claim.
	// +optional
	Claim *HostClaim `json:"claim,omitempty"`

	// adoption says that the host runs a Node of the named Cluster already. A Machine of this
	// Cluster may claim the host, and takes the Node over as it is: nothing is installed,
	// started or stopped. No other Machine gets the host. Administrators set it on a host
	// without a claim; the provider removes it when the Node is taken over.
	// +optional
	Adoption *HostAdoption `json:"adoption,omitempty"`

	// cordon excludes the host from new claims. A Node that runs on the host is not
	// affected. Administrators set and remove it.
	// +optional
	Cordon *HostCordon `json:"cordon,omitempty"`

	// maintenance leaves the host's Node and data alone while somebody works on the
	// host. The host is not bootstrapped or reset, its failures have no consequences,
	// and Cluster API does not remediate its Machine. Administrators set it.
	// +optional
	Maintenance *HostMaintenance `json:"maintenance,omitempty"`

	// maintenanceEndedAt is the time maintenance.until of the maintenance that was the last to
	// end at its time. The provider writes it, and leaves maintenance as it is: whoever keeps
	// that in git is not contradicted. Another time in maintenance.until begins another
	// maintenance.
	// +optional
	MaintenanceEndedAt metav1.Time `json:"maintenanceEndedAt,omitempty,omitzero"`

	// quarantine excludes the host from new claims after repeated failures. The provider
	// sets it, and removes it when it expires. Remove it to end the quarantine earlier.
	// +optional
	Quarantine *HostQuarantine `json:"quarantine,omitempty"`

	// fence releases a host by force, because it is dead or stolen. Its Machine is
	// deleted at once. If the host returns, it may do nothing but reset itself.
	// Administrators set it. Remove it after the reset to make the host available again.
	// +optional
	Fence *HostFence `json:"fence,omitempty"`

	// reboot requests one reboot. Administrators and ElementalRemediations set it.
	// +optional
	Reboot *HostReboot `json:"reboot,omitempty"`

	// osUpgrade requests one upgrade of the operating system image. It needs a host
	// whose agent uses the elemental CLI. A host that a machine has claimed is upgraded
	// only during maintenance.
	// +optional
	OSUpgrade *HostOSUpgrade `json:"osUpgrade,omitempty"`

	// bundle is the bundle of Kubernetes that the host keeps unpacked on its disk. A
	// bootstrap installs it first, if the host lacks the programs. The provider writes it.
	// +optional
	Bundle *HostBundle `json:"bundle,omitempty"`

	// nodeUpgrade requests one upgrade of Kubernetes in place. The provider writes it,
	// for a host with a Node.
	// +optional
	NodeUpgrade *HostNodeUpgrade `json:"nodeUpgrade,omitempty"`

	// etcdRestore requests one restore of etcd. The provider writes it for an
	// ElementalEtcdRestore that a person has confirmed.
	// +optional
	EtcdRestore *HostEtcdRestore `json:"etcdRestore,omitempty"`

	// certificateRenewal requests one renewal of the certificates that kubeadm has made on a
	// control-plane host. The provider writes it for a control plane of one host, as
	// spec.certificates of the ElementalCluster says. Administrators may set it on any
	// control-plane host.
	// +optional
	CertificateRenewal *HostCertificateRenewal `json:"certificateRenewal,omitempty"`

	// controlPlaneHalt requests that the control plane on the host stands still, because etcd
	// of its cluster is restored on another host. The provider writes it for an
	// ElementalEtcdRestore.
	// +optional
	ControlPlaneHalt *HostControlPlaneHalt `json:"controlPlaneHalt,omitempty"`

	// logRequest requests the log of the last operation of a type, such as Bootstrap. It needs
	// the verb logs. Administrators set it; the provider removes it when the host has answered,
	// or when nobody waits any more.
	// +optional
	LogRequest *HostLogRequest `json:"logRequest,omitempty"`

	// grantedTo says that an ElementalHostGrant has moved the host into another namespace. The
	// provider writes it on the object in the pool, which stays there as the pool's record. It
	// needs the verb grant. If the other object is lost for ever, remove it to have the host here
	// again.
	// +optional
	GrantedTo *HostGrantedTo `json:"grantedTo,omitempty"`

	// grantedFrom says which pool the host was granted from. The provider writes it on the
	// object in the other namespace. It needs the verb grant.
	// +optional
	GrantedFrom *HostGrantedFrom `json:"grantedFrom,omitempty"`

	// hostname that the agent sets before a bootstrap; it becomes the name of the Node.
	// It can't change while the host is claimed. Defaults to the name of the
	// ElementalHost.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`
}

// ElementalHostStatus is what the host reported, with the conditions derived from it.
type ElementalHostStatus struct {
	// inventory is the hardware and the software that the host reported.
	// +optional
	Inventory *HostInventory `json:"inventory,omitempty"`

	// addresses of the host. The first InternalIP is an address of the interface with
	// the default route.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// agent describes the agent on the host.
	// +optional
	Agent *HostAgent `json:"agent,omitempty"`

	// keyFingerprint is the fingerprint of the key that the machine has last proved to
	// have, as this host. Of several ElementalHosts that name one key, the one with the
	// fingerprint here keeps it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=71
	KeyFingerprint string `json:"keyFingerprint,omitempty"`

	// connection is the state of the agent's connection. It is written only when the
	// state changes.
	// +optional
	Connection *HostConnection `json:"connection,omitempty"`

	// tunnel is the state of the host's tunnel, through which the manager reaches API
	// servers of the host's cluster. It is absent while the plan asks for none. It is
	// written only when the state changes.
	// +optional
	Tunnel *HostTunnel `json:"tunnel,omitempty"`

	// cleanliness is the result of the agent's last search for leftovers of former
	// nodes. The agent searches when it starts, before a bootstrap and after a reset.
	// +optional
	Cleanliness *HostCleanliness `json:"cleanliness,omitempty"`

	// operations are the last operation of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Operations []HostOperation `json:"operations,omitempty"`

	// bundle is the state of the bundle of Kubernetes on the host.
	// +optional
	Bundle *HostBundleStatus `json:"bundle,omitempty"`

	// etcdSnapshots are the snapshots of etcd on the host, of the cluster that it is
	// claimed for. It is absent until a control-plane host has reported them.
	// +optional
	EtcdSnapshots *HostEtcdSnapshots `json:"etcdSnapshots,omitempty"`

	// etcdSnapshotUpload is what the host says of its uploads of snapshots of etcd.
	// +optional
	EtcdSnapshotUpload *HostEtcdSnapshotUpload `json:"etcdSnapshotUpload,omitempty"`

	// certificates of the control plane that kubeadm has made on the host: when they end. It is
	// absent until a control-plane host has reported them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Certificates []HostCertificate `json:"certificates,omitempty"`
	// successor says whether the host reaches the successor of its registration.
	// +optional
	Successor *HostSuccessor `json:"successor,omitempty"`

	// log says where the log is that the host has sent for the last spec.logRequest. It is
	// absent when that has expired.
	// +optional
	Log *HostLog `json:"log,omitempty"`

	// endpoint is what the host reported about the control plane endpoint of its
	// cluster. It is absent while no machine has claimed the host.
	// +optional
	Endpoint *HostEndpoint `json:"endpoint,omitempty"`

	// erasure is the result of the last erasure of data disks.
	// +optional
	Erasure *HostErasure `json:"erasure,omitempty"`

	// failures counts consecutive failed bootstraps.
	// +optional
	Failures *HostFailures `json:"failures,omitempty"`

	// conditions of the host: Ready, Connected, Approved, Available, Clean,
	// Bootstrapped, Prepared, ClockSynchronized, AgentCurrent, CertificatesValid,
	// MachineExists, KeyAccepted, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalHost is a physical or virtual machine that runs the elemental agent.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementalhosts,scope=Namespaced,categories=cluster-api,shortName=eh
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.claim.clusterName"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".spec.claim.machineName"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Connected",type="string",JSONPath=".status.conditions[?(@.type=='Connected')].status"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.connection.since",description="when the agent connected, or was heard of for the last time"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address"
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=".metadata.labels['topology\\.kubernetes\\.io/zone']"
// +kubebuilder:printcolumn:name="Cores",type="integer",JSONPath=".status.inventory.cpu.cores"
// +kubebuilder:printcolumn:name="Agent",type="string",JSONPath=".status.agent.version"
// +kubebuilder:printcolumn:name="Memory",type="integer",format="int64",priority=1,JSONPath=".status.inventory.memoryBytes",description="in bytes"
// +kubebuilder:printcolumn:name="OS",type="string",priority=1,JSONPath=".status.inventory.os.prettyName"
// +kubebuilder:printcolumn:name="Kubernetes",type="string",priority=1,JSONPath=".status.inventory.kubernetes.kubelet.version"
// +kubebuilder:printcolumn:name="Key",type="string",priority=1,JSONPath=".spec.identity.keyFingerprint"
// +kubebuilder:printcolumn:name="Pool",type="string",priority=1,JSONPath=".spec.grantedFrom.namespace",description="where the host was granted from"
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
func (h *ElementalHost) SetConditions(list []metav1.Condition) { h.Status.Conditions = list }

// IsConnected reports whether the host's agent is connected to the manager.
func (h *ElementalHost) IsConnected() bool {
	return h.Status.Connection != nil && h.Status.Connection.State == ConnectionConnected
}

// HasTunnel reports whether the host has a tunnel, or had one until a moment ago.
func (h *ElementalHost) HasTunnel() bool {
	return h.Status.Tunnel != nil && h.Status.Tunnel.State == ConnectionConnected
}

// IsBoundOrHeld reports whether the host's claim is Bound or Held: the host is a Node or
// is about to become one.
func (h *ElementalHost) IsBoundOrHeld() bool {
	claim := h.Spec.Claim
	return claim != nil && (claim.Phase == ClaimBound || claim.Phase == ClaimHeld)
}

// IsBootstrapped reports whether the host is claimed and the bootstrap for that
// claim succeeded.
func (h *ElementalHost) IsBootstrapped() bool {
	if !h.IsBoundOrHeld() {
		return false
	}
	op := h.Operation(OperationBootstrap, h.Spec.Claim.ID)
	return op != nil && op.State == OperationSucceeded
}

// ElementalHostList is a list of ElementalHosts.
// +kubebuilder:object:root=true
type ElementalHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalHost `json:"items"`
}
