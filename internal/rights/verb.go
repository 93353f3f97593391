package rights

// Verb is a verb of RBAC that only this provider's webhooks ask for.
type Verb string

// Verbs.
const (
	// Approve decides which machine a host is, and whether it may be used.
	Approve Verb = "approve"
	// Fence gives a dead or stolen host up.
	Fence Verb = "fence"
	// Release changes which Machine has a host, such as to release one that is held.
	Release Verb = "release"
	// Erase decides whether the data disks of a host are erased.
	Erase Verb = "erase"
	// Install decides what a host installs or boots.
	Install Verb = "install"
	// Restore replaces the data of etcd.
	Restore Verb = "restore"
	// Grant decides which namespace has a host.
	Grant Verb = "grant"
	// Logs asks a host for the log of an operation, which may have secrets.
	Logs Verb = "logs"
)

// All returns all verbs.
func All() []Verb { return []Verb{Approve, Fence, Release, Erase, Install, Restore, Grant, Logs} }

// Roles of the release that have verbs, as ClusterRoles.
const (
	adminRole    = "elemental-admin"
	operatorRole = "elemental-host-operator"
)

// Roles returns the ClusterRoles that have the verb. Administrators of a namespace decide what
// ends with their own claim of a host; only operators decide what is left when that is over.
func (v Verb) Roles() []string {
	switch v {
	case Fence, Release, Erase, Restore, Logs:
		return []string{adminRole, operatorRole}
	case Approve, Install, Grant, free:
	}
	return []string{operatorRole}
}
