package protocol

import "time"

// EtcdSnapshot asks for a snapshot of etcd.
type EtcdSnapshot struct {
	// ID names the snapshot on the host and in reports. It has at most 63 characters:
	// letters, digits and hyphens.
	ID string `json:"id"`
	// Cluster is stored with the snapshot.
	Cluster EtcdCluster `json:"cluster"`
	// Keep is how many snapshots of the cluster the host keeps, the newest ones, at most
	// MaxEtcdSnapshots.
	Keep int32 `json:"keep"`
}

// EtcdCluster names the Cluster of the management cluster whose etcd it is.
type EtcdCluster struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID of the Cluster. A move to another management cluster changes it.
	UID string `json:"uid,omitempty"`
}

// EtcdSnapshotReport says which snapshots the host has of the etcd that it runs.
type EtcdSnapshotReport struct {
	// Snapshots are complete and undamaged, the newest one first, at most MaxEtcdSnapshots.
	Snapshots []EtcdSnapshotFacts `json:"snapshots,omitempty"`
	// Failure is why the last attempt failed; nil after a success.
	Failure *EtcdSnapshotFailure `json:"failure,omitempty"`
}

// EtcdSnapshotFacts describes a snapshot on the host. It is also the content of the file
// that the agent stores beside the snapshot.
type EtcdSnapshotFacts struct {
	ID      string      `json:"id"`
	Cluster EtcdCluster `json:"cluster"`
	// CompletedAt is by the host's clock.
	CompletedAt time.Time `json:"completedAt"`
	// Revision of etcd just before the snapshot; 0 if the member did not tell.
	Revision  int64 `json:"revision,omitempty"`
	SizeBytes int64 `json:"sizeBytes"`
	// SHA256 of the file, in lower-case hex.
	SHA256 string `json:"sha256"`
	// KubernetesVersion is that of the host's API server, and EtcdVersion that of its member.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	EtcdVersion       string `json:"etcdVersion,omitempty"`
}

// EtcdSnapshotFailure is a snapshot that could not be taken.
type EtcdSnapshotFailure struct {
	ID      string      `json:"id"`
	Cluster EtcdCluster `json:"cluster"`
	// Message explains the failure in at most MaxMessageBytes.
	Message string `json:"message,omitempty"`
}
