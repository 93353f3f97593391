package v1beta2

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdSnapshots says when snapshots of the cluster's etcd are taken, how many are kept, and
// where they are uploaded to.
// +kubebuilder:validation:XValidation:rule="!has(self.destination) || has(self.recipients)",message="a destination needs recipients: snapshots contain all Secrets of the cluster, and leave hosts encrypted only"
// +kubebuilder:validation:XValidation:rule="!has(self.retention) || !has(self.retention.offHosts) || has(self.destination)",message="retention.offHosts needs a destination"
type EtcdSnapshots struct {
	// schedule says when snapshots are taken.
	// +optional
	Schedule EtcdSnapshotSchedule `json:"schedule,omitempty,omitzero"`

	// retention says how many snapshots are kept.
	// +optional
	Retention EtcdSnapshotRetention `json:"retention,omitempty,omitzero"`

	// destination is where hosts upload their scheduled snapshots to, encrypted for the
	// recipients. If it is absent, snapshots stay on hosts.
	// +optional
	Destination *EtcdSnapshotDestination `json:"destination,omitempty"`

	// recipients are the public keys of age that can read uploaded snapshots, such as
	// "age1...". Whoever has the identity of one of them reads all Secrets of the cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Pattern=`^age1[02-9ac-hj-np-z]{58}$`
	Recipients []string `json:"recipients,omitempty"`
}

// EtcdSnapshotSchedule says when snapshots are taken.
type EtcdSnapshotSchedule struct {
	// intervalSeconds is the time between two snapshots, in seconds. It is counted from a
	// moment that follows from the name of the cluster, so that not all clusters take
	// their snapshots at once. Defaults to 21600, which is six hours.
	// +optional
	// +kubebuilder:validation:Minimum=300
	// +kubebuilder:validation:Maximum=604800
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
}

// EtcdSnapshotRetention says how many snapshots are kept.
type EtcdSnapshotRetention struct {
	// onHosts is how many snapshots of the cluster each control-plane host keeps, the
	// newest ones. Defaults to 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	OnHosts *int32 `json:"onHosts,omitempty"`

	// offHosts is how many uploaded snapshots of the cluster stay at the destination, the
	// newest ones. The manager removes older ones from a bucket, and hosts remove them from a
	// folder. Defaults to 28, which is a week of the default schedule.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	OffHosts *int32 `json:"offHosts,omitempty"`
}

// Defaults of EtcdSnapshots.
const (
	DefaultEtcdSnapshotInterval = 6 * time.Hour
	DefaultEtcdSnapshotsOnHosts = 5
	// DefaultEtcdSnapshotsOffHosts is a week of the default schedule.
	DefaultEtcdSnapshotsOffHosts = 28
)

// Interval returns the time between two snapshots.
func (s *EtcdSnapshots) Interval() time.Duration {
	if s.Schedule.IntervalSeconds == nil {
		return DefaultEtcdSnapshotInterval
	}
	return time.Duration(*s.Schedule.IntervalSeconds) * time.Second
}

// OnHosts returns how many snapshots each host keeps.
func (s *EtcdSnapshots) OnHosts() int32 {
	if s.Retention.OnHosts == nil {
		return DefaultEtcdSnapshotsOnHosts
	}
	return *s.Retention.OnHosts
}

// OffHosts returns how many uploaded snapshots stay at the destination.
func (s *EtcdSnapshots) OffHosts() int {
	if s.Retention.OffHosts == nil {
		return DefaultEtcdSnapshotsOffHosts
	}
	return int(*s.Retention.OffHosts)
}

// Bucket returns the bucket that snapshots are uploaded to, or nil. s may be nil.
func (s *EtcdSnapshots) Bucket() *S3Bucket {
	if s == nil || s.Destination == nil {
		return nil
	}
	return s.Destination.S3
}

// EtcdSnapshotRecord is the provider's record of scheduled snapshots. It is in spec, so that
// a move or restore of the management cluster keeps it.
type EtcdSnapshotRecord struct {
	// request is the snapshot that a host is asked for. It is absent while none is due.
	// +optional
	Request *EtcdSnapshotRequest `json:"request,omitempty"`

	// last is the last scheduled snapshot that was taken.
	// +optional
	Last *EtcdSnapshotTaken `json:"last,omitempty"`
}

// EtcdSnapshotRequest is a snapshot that a host is asked for.
type EtcdSnapshotRequest struct {
	// scheduledAt is the time of the schedule. The ID of the snapshot follows from it.
	// +required
	ScheduledAt metav1.Time `json:"scheduledAt,omitempty,omitzero"`
	// hostName is the ElementalHost that takes the snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// askedAt is when the host was chosen. Another host is asked if it does not deliver.
	// +required
	AskedAt metav1.Time `json:"askedAt,omitempty,omitzero"`
}

// EtcdSnapshotTaken is a scheduled snapshot that was taken.
type EtcdSnapshotTaken struct {
	// scheduledAt is the time of the schedule. The ID of the snapshot follows from it.
	// +required
	ScheduledAt metav1.Time `json:"scheduledAt,omitempty,omitzero"`
	// hostName is the ElementalHost that has the snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// takenAt is when the host reported the snapshot.
	// +required
	TakenAt metav1.Time `json:"takenAt,omitempty,omitzero"`
}

// EtcdSnapshotID returns the ID of the snapshot of a time of the schedule.
func EtcdSnapshotID(scheduledAt metav1.Time) string {
	return scheduledAt.UTC().Format("20060102T150405Z")
}

// HostEtcdSnapshots are the snapshots of etcd on a host.
type HostEtcdSnapshots struct {
	// items are the snapshots of the cluster that the host is claimed for, the newest one
	// first.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	Items []HostEtcdSnapshot `json:"items,omitempty"`
	// failure is why the host could not take the snapshot that it was asked for last.
	// +optional
	Failure *HostEtcdSnapshotFailure `json:"failure,omitempty"`
}

// HostEtcdSnapshot is a snapshot of etcd on a host.
type HostEtcdSnapshot struct {
	// id of the snapshot, which is the time of the schedule.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// completedAt is the time whose data the snapshot has, by the host's clock. What was written
	// later may be missing.
	// +optional
	CompletedAt metav1.Time `json:"completedAt,omitempty,omitzero"`
	// revision of etcd just before the snapshot; the snapshot has it or a later one. It is
	// absent if the member did not tell.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`
	// sizeBytes is the size of the file, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// sha256 of the file, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
	// kubernetesVersion is the version of the host's API server.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// etcdVersion is the version of the member.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	EtcdVersion string `json:"etcdVersion,omitempty"`
}

// HostEtcdSnapshotFailure is a snapshot that a host could not take.
type HostEtcdSnapshotFailure struct {
	// id of the snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// message says what failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// EtcdSnapshot returns the snapshot with the ID that the host has reported, or nil.
func (h *ElementalHost) EtcdSnapshot(id string) *HostEtcdSnapshot {
	if h.Status.EtcdSnapshots == nil {
		return nil
	}
	for i := range h.Status.EtcdSnapshots.Items {
		if item := &h.Status.EtcdSnapshots.Items[i]; item.ID == id {
			return item
		}
	}
	return nil
}
