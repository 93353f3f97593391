package protocol

import (
	"strings"
	"time"
)

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
	// CompletedAt is by the host's clock. What was written before is in the snapshot; what was written later may be
	// missing, because etcd sends the data that it has when it begins. Agents of v0.1.0 gave the end of the transfer.
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

// EtcdSnapshotUpload asks for the upload of a snapshot that the host has.
type EtcdSnapshotUpload struct {
	// ID of the snapshot.
	ID string `json:"id"`
	// Recipients are the public keys of age that the snapshot is encrypted for, at most
	// MaxRecipients.
	Recipients []string `json:"recipients"`
	// Folder is where the snapshot is copied to. Nil: it is uploaded with what
	// PathEtcdSnapshotUpload answers.
	Folder *EtcdSnapshotFolder `json:"folder,omitempty"`
}

// EtcdSnapshotFolder is a folder on the host that something is mounted at. Several hosts may share it.
type EtcdSnapshotFolder struct {
	// Path is absolute.
	Path string `json:"path"`
	// HostName is part of the names of the host's files.
	HostName string `json:"hostName"`
	// Keep is how many snapshots of the cluster stay there, the newest ones of all hosts.
	Keep int `json:"keep"`
}

// EtcdSnapshotGrantRequest asks for the permission to upload the snapshot that the plan wants
// uploaded.
type EtcdSnapshotGrantRequest struct {
	ID string `json:"id"`
	// SizeBytes is the exact size of the object.
	SizeBytes int64 `json:"sizeBytes"`
}

// EtcdSnapshotGrant permits one upload: a PUT of one object of one size.
type EtcdSnapshotGrant struct {
	// Object is the name of the object.
	Object string `json:"object"`
	// URL contains the permission, so it must not be logged.
	URL string `json:"url"`
	// Headers belong to the permission: the request must have exactly these values.
	Headers map[string]string `json:"headers,omitempty"`
	// TrustBundle has the CA certificates, PEM, that the storage's certificate chains to.
	// Blank: those of the operating system.
	TrustBundle string `json:"trustBundle,omitempty"`
	// Relay: the storage is reached through PathEtcdSnapshotRelay, not directly.
	Relay bool `json:"relay,omitempty"`
	// ExpiresAt is when the storage no longer accepts the beginning of an upload.
	ExpiresAt time.Time `json:"expiresAt"`
}

// objectSuffix is how the names of objects end: archives of tar that are encrypted with age.
const objectSuffix = ".tar.age"

// EtcdSnapshotObjectName returns the name of an object or file in the folder of its cluster. It begins
// with the time of the snapshot.
func EtcdSnapshotObjectName(id, host string) string { return id + "." + host + objectSuffix }

// ParseEtcdSnapshotObjectName is the reverse of EtcdSnapshotObjectName. IDs have no dots, and host names
// may.
func ParseEtcdSnapshotObjectName(name string) (id, host string, ok bool) {
	id, host, _ = strings.Cut(name, ".")
	host, ok = strings.CutSuffix(host, objectSuffix)
	return id, host, ok && id != "" && host != "" && !strings.Contains(name, "/")
}

// EtcdSnapshotUploadReport says what has left the host.
type EtcdSnapshotUploadReport struct {
	// Last is the upload that was completed last since the agent's start.
	Last *EtcdSnapshotObject `json:"last,omitempty"`
	// Failure is why the last attempt failed; nil after a success.
	Failure *EtcdSnapshotUploadFailure `json:"failure,omitempty"`
}

// EtcdSnapshotObject is an uploaded snapshot.
type EtcdSnapshotObject struct {
	// ID of the snapshot.
	ID string `json:"id"`
	// Object is the name of the object, or the path of the file.
	Object string `json:"object"`
	// SizeBytes and SHA256, in lower-case hex, are those of the object, which is encrypted.
	SizeBytes int64  `json:"sizeBytes"`
	SHA256    string `json:"sha256"`
}

// EtcdSnapshotUploadFailure is a snapshot that could not be uploaded.
type EtcdSnapshotUploadFailure struct {
	ID string `json:"id"`
	// Message explains the failure in at most MaxMessageBytes.
	Message string `json:"message,omitempty"`
}

// EtcdSnapshotFailure is a snapshot that could not be taken.
type EtcdSnapshotFailure struct {
	ID      string      `json:"id"`
	Cluster EtcdCluster `json:"cluster"`
	// Message explains the failure in at most MaxMessageBytes.
	Message string `json:"message,omitempty"`
}
