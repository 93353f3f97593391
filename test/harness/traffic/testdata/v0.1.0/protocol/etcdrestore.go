package protocol

import (
	"strings"
	"time"
)

// EtcdRestore begins a cluster of etcd with one member, that of the host, from a snapshot, or
// from the data that the member has.
type EtcdRestore struct {
	// SnapshotID is the ID of the snapshot, and SHA256 that of its file, in lower-case hex.
	// Both are blank if the data of the member is used.
	SnapshotID string `json:"snapshotID,omitempty"`
	SHA256     string `json:"sha256,omitempty"`
	// Cluster is the cluster that the snapshot must be of. Its UID is blank.
	Cluster EtcdCluster `json:"cluster"`
	// ReplaceHealthy permits to replace the data of a member that is healthy.
	ReplaceHealthy bool `json:"replaceHealthy,omitempty"`
	// Uploaded has the host download the snapshot first, with what PathEtcdSnapshotFetch
	// answers. Otherwise the host has the snapshot.
	Uploaded bool `json:"uploaded,omitempty"`
	// OwnData has the member go on with its own data, as the only one.
	OwnData bool `json:"ownData,omitempty"`
}

// ControlPlaneHalt ends the control plane of a host whose cluster's etcd is restored on another
// host.
type ControlPlaneHalt struct {
	// ReplaceHealthy permits to halt a control plane that is well.
	ReplaceHealthy bool `json:"replaceHealthy,omitempty"`
}

// EtcdSnapshotFetchRequest asks for the snapshot of the EtcdRestore that the plan has.
type EtcdSnapshotFetchRequest struct {
	// ID of the operation.
	ID string `json:"id"`
}

// EtcdSnapshotFetchGrant permits one download, and has the key of the object. It must not be
// logged or stored.
type EtcdSnapshotFetchGrant struct {
	// Object is the name of the object, and SizeBytes its size.
	Object    string `json:"object"`
	SizeBytes int64  `json:"sizeBytes"`
	// URL contains the permission.
	URL string `json:"url"`
	// TrustBundle has the CA certificates, PEM, that the storage's certificate chains to.
	// Blank: those of the operating system.
	TrustBundle string `json:"trustBundle,omitempty"`
	// FileKey is the file key of age, which opens this object and no other.
	FileKey []byte `json:"fileKey"`
	// ExpiresAt is when the storage no longer accepts the beginning of a download.
	ExpiresAt time.Time `json:"expiresAt"`
}

// FileKeyBytes is the length of EtcdSnapshotFetchGrant.FileKey.
const FileKeyBytes = 16

// RestoreOutcome says what an EtcdRestore that failed has left behind. It is how
// OperationReport.Message begins; the rest of the message is for people.
type RestoreOutcome string

// Outcomes of EtcdRestores that failed.
const (
	// RestoreChangedNothing: the restore ended before it changed anything.
	RestoreChangedNothing RestoreOutcome = "nothing was changed"
	// RestoreRolledBack: the member has its former data again.
	RestoreRolledBack RestoreOutcome = "rolled back"
	// RestoreLeftBroken: the way back failed too. A person has to look at the host.
	RestoreLeftBroken RestoreOutcome = "not serving"
)

// Message returns the message of an EtcdRestore with this outcome.
func (o RestoreOutcome) Message(text string) string { return string(o) + ": " + text }

// HasFormerData reports whether the message of an EtcdRestore that failed says that the host is
// as it was before.
func HasFormerData(message string) bool {
	return strings.HasPrefix(message, RestoreChangedNothing.Message("")) || strings.HasPrefix(message, RestoreRolledBack.Message(""))
}
