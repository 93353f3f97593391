package protocol

import "strings"

// EtcdRestore begins a cluster of etcd with one member, that of the host, from a snapshot which
// the host has.
type EtcdRestore struct {
	// SnapshotID is the ID of the snapshot, and SHA256 that of its file, in lower-case hex.
	SnapshotID string `json:"snapshotID"`
	SHA256     string `json:"sha256"`
	// Cluster is the cluster that the snapshot must be of. Its UID is blank.
	Cluster EtcdCluster `json:"cluster"`
	// ReplaceHealthy permits to replace the data of a member that is healthy.
	ReplaceHealthy bool `json:"replaceHealthy,omitempty"`
}

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
