package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdRestoreFinalizer is on an ElementalEtcdRestore as long as its Cluster is paused for it.
const EtcdRestoreFinalizer = "infrastructure.cluster.x-k8s.io/etcd-restore"

// ElementalEtcdRestoreSpec says which cluster gets which data. Nothing happens before confirm
// is set; until then, status.plan shows what would.
// +kubebuilder:validation:XValidation:rule="self.clusterName == oldSelf.clusterName && self.source == oldSelf.source",message="clusterName and source can't change: create another ElementalEtcdRestore"
// +kubebuilder:validation:XValidation:rule="!has(self.confirm) || self.confirm == self.clusterName",message="confirm must be the name of the Cluster"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.confirm) || (has(self.confirm) && has(self.replaceHealthy) == has(oldSelf.replaceHealthy) && (!has(self.replaceHealthy) || self.replaceHealthy == oldSelf.replaceHealthy) && has(self.rebuildControlPlane) == has(oldSelf.rebuildControlPlane) && (!has(self.rebuildControlPlane) || self.rebuildControlPlane == oldSelf.rebuildControlPlane))",message="a confirmed restore can't change"
// +kubebuilder:validation:XValidation:rule="!has(self.rebuildControlPlane) || !self.rebuildControlPlane || !has(self.source.survivor)",message="rebuildControlPlane needs a snapshot: a host that has lost its control plane is no survivor"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.request) || (has(self.request) && self.request.id == oldSelf.request.id)",message="the request can't change"
type ElementalEtcdRestoreSpec struct {
	// clusterName is the name of the Cluster, in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// source is where the data comes from.
	// +required
	Source EtcdRestoreSource `json:"source,omitempty,omitzero"`

	// replaceHealthy permits to replace the data of an etcd that is well, to go back to a
	// time before a mistake. Everything that was written since the snapshot is lost.
	// +optional
	ReplaceHealthy *bool `json:"replaceHealthy,omitempty"`

	// rebuildControlPlane has the host that etcd is restored on set up its control plane again
	// first, because the files of Kubernetes on it are lost: certificates, kubeconfigs and
	// manifests, from the bootstrap data of its Machine and the kubeadmConfigSpec of the
	// KubeadmControlPlane. A host that has not lost them refuses. The source must be a snapshot.
	// +optional
	RebuildControlPlane *bool `json:"rebuildControlPlane,omitempty"`

	// confirm begins the restore. It must be the name of the Cluster. Read status.plan
	// before.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Confirm string `json:"confirm,omitempty"`

	// request is the provider's record of the restore that was begun. It is in spec, so that
	// a move or restore of the management cluster keeps it: no restore runs twice.
	// +optional
	Request *EtcdRestoreRequest `json:"request,omitempty"`
}

// EtcdRestoreSource is where the data comes from.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type EtcdRestoreSource struct {
	// snapshot is a snapshot of etcd on the host that etcd is restored on.
	// +optional
	Snapshot *EtcdRestoreSnapshot `json:"snapshot,omitempty"`
	// uploaded is a snapshot of etcd at the destination of the cluster's snapshots. A
	// control-plane host of the cluster downloads it.
	// +optional
	Uploaded *EtcdRestoreUpload `json:"uploaded,omitempty"`
	// survivor is a control-plane host whose member of etcd is left. etcd goes on with the
	// data of this member as the only one, when a majority of the members is lost.
	// +optional
	Survivor *EtcdRestoreSurvivor `json:"survivor,omitempty"`
}

// EtcdRestoreSurvivor is a control-plane host whose member of etcd is left.
type EtcdRestoreSurvivor struct {
	// hostName is the ElementalHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
}

// EtcdRestoreUpload is a snapshot of etcd at the destination of the cluster's snapshots.
type EtcdRestoreUpload struct {
	// hostName is the host that has uploaded it, as status.etcdSnapshots of the
	// ElementalCluster has it. It may be gone.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[0-9a-z]([0-9a-z.\-]*[0-9a-z])?$`
	HostName string `json:"hostName,omitempty"`
	// id of the snapshot, as status.etcdSnapshots of the ElementalCluster has it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z][0-9A-Za-z\-]*$`
	ID string `json:"id,omitempty"`
	// identityRef is a Secret of the same namespace with the key identity: the identity of age
	// that opens the snapshot, as age-keygen writes it. Only the manager reads it. Hosts get
	// the key of this one snapshot. Delete the Secret after the restore.
	// +required
	IdentityRef EtcdRestoreIdentityReference `json:"identityRef,omitempty,omitzero"`
	// restoreOn is the control-plane host that etcd is restored on. It is required if the
	// control plane has several hosts.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[0-9a-z]([0-9a-z.\-]*[0-9a-z])?$`
	RestoreOn string `json:"restoreOn,omitempty"`
}

// EtcdRestoreIdentityReference names a Secret of the same namespace.
type EtcdRestoreIdentityReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// EtcdRestoreSnapshot is a snapshot of etcd on a host.
type EtcdRestoreSnapshot struct {
	// hostName is the ElementalHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// id of the snapshot, as status.etcdSnapshots of the ElementalHost has it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
}

// EtcdRestoreRequest is a restore that was begun.
type EtcdRestoreRequest struct {
	// id of the request. The agent runs the restore at most once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// hostName is the ElementalHost that etcd is restored on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// sha256 of the snapshot, in hex, as the host had reported it. It is absent if the source
	// is a survivor.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
	// others are the control-plane hosts whose Machines are replaced. Their control planes
	// are halted first.
	// +optional
	// +listType=map
	// +listMapKey=hostName
	// +kubebuilder:validation:MaxItems=16
	Others []EtcdRestoreHost `json:"others,omitempty"`
	// laterNodes are the hosts that became Nodes after the snapshot, which does not have these Nodes.
	// They are rebooted after the restore, so that they register again.
	// +optional
	// +listType=map
	// +listMapKey=hostName
	// +kubebuilder:validation:MaxItems=256
	LaterNodes []EtcdRestoreHost `json:"laterNodes,omitempty"`
	// servedAt is when the manager learned that etcd serves the snapshot. It is absent before that, and
	// without laterNodes.
	// +optional
	ServedAt metav1.Time `json:"servedAt,omitempty,omitzero"`
	// result is how the restore ended. It is absent while the restore goes on.
	// +optional
	Result EtcdRestoreResult `json:"result,omitempty"`
}

// MaxEtcdRestoreLaterNodes bounds EtcdRestoreRequest.LaterNodes.
const MaxEtcdRestoreLaterNodes = 256

// EtcdRestoreHost is a host of the cluster other than the one that etcd is restored on.
type EtcdRestoreHost struct {
	// hostName is the ElementalHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// machineName is its Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MachineName string `json:"machineName,omitempty"`
	// claimID is the ID of the host's claim for the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClaimID string `json:"claimID,omitempty"`
}

// EtcdRestoreResult is how a restore ended.
// +kubebuilder:validation:Enum=Restored;Failed;NotServing
type EtcdRestoreResult string

// Results of restores.
const (
	// EtcdRestoreSucceeded: etcd serves the data of the snapshot.
	EtcdRestoreSucceeded EtcdRestoreResult = "Restored"
	// EtcdRestoreFailed: the host is as it was before.
	EtcdRestoreFailed EtcdRestoreResult = "Failed"
	// EtcdRestoreNotServing: the control plane does not serve. The Cluster stays paused until
	// the ElementalEtcdRestore is deleted.
	EtcdRestoreNotServing EtcdRestoreResult = "NotServing"
)

// EtcdRestorePlan is what a restore does.
type EtcdRestorePlan struct {
	// hostName is the ElementalHost that etcd is restored on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// snapshot is what etcd is restored from. It is absent if the source is a survivor.
	// +optional
	Snapshot HostEtcdSnapshot `json:"snapshot,omitempty,omitzero"`
	// object is the name of the snapshot's object at the destination. It is absent if the host
	// has the snapshot itself.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Object string `json:"object,omitempty"`
	// steps say what happens, in order, and what is lost.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=2048
	Steps []string `json:"steps,omitempty"`
}

// ElementalEtcdRestoreStatus is the observed state of an ElementalEtcdRestore.
type ElementalEtcdRestoreStatus struct {
	// plan is what the restore does. It is absent while the restore is refused, and does not
	// change once the restore has begun.
	// +optional
	Plan *EtcdRestorePlan `json:"plan,omitempty"`

	// conditions of the restore: Restored.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElementalEtcdRestore restores etcd of one cluster on one of its control-plane hosts, once. The
// Machines of its other control-plane hosts are replaced.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elementaletcdrestores,scope=Namespaced,categories=cluster-api,shortName=eer
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.plan.hostName"
// +kubebuilder:printcolumn:name="Snapshot",type="string",JSONPath=".status.plan.snapshot.id"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.conditions[?(@.type=='Restored')].reason"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Restored')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalEtcdRestore struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +required
	Spec ElementalEtcdRestoreSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalEtcdRestoreStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (r *ElementalEtcdRestore) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (r *ElementalEtcdRestore) SetConditions(list []metav1.Condition) { r.Status.Conditions = list }

// ElementalEtcdRestoreList is a list of ElementalEtcdRestores.
// +kubebuilder:object:root=true
type ElementalEtcdRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalEtcdRestore `json:"items"`
}

// HostControlPlaneHalt requests that the control plane on a host stands still, because etcd of
// its cluster is restored on another host.
type HostControlPlaneHalt struct {
	// id of the request, which is that of the restore. The agent halts and starts at most
	// once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// restoreName is the name of the ElementalEtcdRestore.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RestoreName string `json:"restoreName,omitempty"`
	// replaceHealthy permits to halt a control plane that is well.
	// +optional
	ReplaceHealthy *bool `json:"replaceHealthy,omitempty"`
	// ended is true once the control plane is to be started again.
	// +optional
	Ended *bool `json:"ended,omitempty"`
}

// IsHalted reports whether the control plane on the host stands still, or is to.
func (h *ElementalHost) IsHalted() bool {
	halt := h.Spec.ControlPlaneHalt
	return halt != nil && (halt.Ended == nil || !*halt.Ended)
}

// HostEtcdRestore requests a restore of etcd on a host.
// +kubebuilder:validation:XValidation:rule="has(self.snapshotID) == has(self.sha256)",message="a snapshot has a digest"
type HostEtcdRestore struct {
	// id of the request. The agent runs the restore at most once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// restoreName is the name of the ElementalEtcdRestore.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RestoreName string `json:"restoreName,omitempty"`
	// snapshotID is the snapshot on the host, or the one that it downloads first. It is absent
	// if etcd goes on with the data that the host has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	SnapshotID string `json:"snapshotID,omitempty"`
	// sha256 of the snapshot, in hex.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
	// uploaded has the host download the snapshot before anything else.
	// +optional
	Uploaded *bool `json:"uploaded,omitempty"`
	// replaceHealthy permits to replace the data of an etcd that is well.
	// +optional
	ReplaceHealthy *bool `json:"replaceHealthy,omitempty"`
	// rebuildControlPlane has the host set up its control plane again before anything else.
	// +optional
	RebuildControlPlane *bool `json:"rebuildControlPlane,omitempty"`
	// withdrawnAt is when the restore was given up. A host that has not begun does not begin after
	// that. The rest of the request stays until it is known that the host has not begun.
	// +optional
	WithdrawnAt metav1.Time `json:"withdrawnAt,omitempty,omitzero"`
}
