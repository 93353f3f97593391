package protocol

import "time"

// OperationType is a kind of Operation. An agent that does not know the type
// reports it as StateUnsupported.
type OperationType string

// Operation types.
const (
	// OperationBootstrap turns a clean host into a Node with the data that
	// PathBootstrap returns.
	OperationBootstrap OperationType = "Bootstrap"
	// OperationReset removes everything that the bootstrap and the Node left.
	OperationReset OperationType = "Reset"
	// OperationReboot reboots the host once.
	OperationReboot OperationType = "Reboot"
	// OperationUpgrade reboots the host into the operating system's image Operation.Image.
	OperationUpgrade OperationType = "Upgrade"
	// OperationNodeUpgrade upgrades a Node in place, as Operation.NodeUpgrade says.
	OperationNodeUpgrade OperationType = "NodeUpgrade"
	// OperationEtcdRestore replaces the data of the host's member of etcd, as
	// Operation.EtcdRestore says.
	OperationEtcdRestore OperationType = "EtcdRestore"
	// OperationCertificateRenewal renews the certificates of the control plane that kubeadm has
	// set up on the host.
	OperationCertificateRenewal OperationType = "CertificateRenewal"
	// OperationControlPlaneHalt ends the control plane on the host, so that no reboot starts
	// it, as Operation.ControlPlaneHalt says. OperationControlPlaneStart with the same ID
	// starts it again.
	OperationControlPlaneHalt  OperationType = "ControlPlaneHalt"
	OperationControlPlaneStart OperationType = "ControlPlaneStart"
)

// Operation runs at most once for each Type and ID. The agent stores which it ran.
type Operation struct {
	Type OperationType `json:"type"`
	ID   string        `json:"id"`
	// SucceededAt is when the operation has succeeded, by the host's clock, if the manager knows
	// that. An agent that does not know the operation then records it instead of running it:
	// the host was another machine at that time.
	SucceededAt *time.Time `json:"succeededAt,omitempty"`
	// ClusterName and MachineName are for the host's log.
	ClusterName string `json:"clusterName,omitempty"`
	MachineName string `json:"machineName,omitempty"`
	// Adoption, on a Bootstrap, says that the host runs the Node already: there is no bootstrap
	// data. The agent checks the Node, and sets its providerID.
	Adoption *Adoption `json:"adoption,omitempty"`
	// Erase, on a Reset, is how data disks are erased: EraseZero or EraseDiscard.
	Erase string `json:"erase,omitempty"`
	// Image, on an Upgrade, is a source of the elemental CLI.
	Image string `json:"image,omitempty"`
	// NodeUpgrade, on a NodeUpgrade, is what to do.
	NodeUpgrade *NodeUpgrade `json:"nodeUpgrade,omitempty"`
	// EtcdRestore, on an EtcdRestore, is what to restore.
	EtcdRestore *EtcdRestore `json:"etcdRestore,omitempty"`
	// ControlPlaneHalt, on a ControlPlaneHalt, is what may be halted.
	ControlPlaneHalt *ControlPlaneHalt `json:"controlPlaneHalt,omitempty"`
}

// Methods of Operation.Erase.
const (
	EraseZero    = "Zero"
	EraseDiscard = "Discard"
)

// OperationState is the state of an operation.
type OperationState string

// Operation states. Succeeded, Failed and Unsupported are final for a
// Bootstrap. The agent retries a failed Reset.
const (
	StateRunning     OperationState = "Running"
	StateSucceeded   OperationState = "Succeeded"
	StateFailed      OperationState = "Failed"
	StateUnsupported OperationState = "Unsupported"
)

// Final reports whether an operation in this state has ended.
func (s OperationState) Final() bool {
	return s == StateSucceeded || s == StateFailed || s == StateUnsupported
}

// Adoption says what the Node on the host must be, and the providerID that it gets. Until the Node is
// taken over it may be any Node, so Plan.Desired has nothing about it.
type Adoption struct {
	// NodeName is the name of the Node.
	NodeName string `json:"nodeName"`
	// ProviderID is what spec.providerID of the Node is set to.
	ProviderID string `json:"providerID"`
	// ControlPlane: an API server and the only member of etcd run on the host.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// AuthorityHash is the SHA-256 of the public key of the cluster's certificate authority, as
	// "sha256:" and 64 hexadecimal digits.
	AuthorityHash string `json:"authorityHash"`
	// Endpoint of the cluster's API server, as host:port.
	Endpoint string `json:"endpoint"`
	// Version of Kubernetes that the kubelet runs; blank for any.
	Version string `json:"version,omitempty"`
}
