package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Version is the protocol version an agent sends in Hello.
const Version = 1

// Paths of the agent API. A request to any other path is answered with 404.
const (
	// PathEnrol (POST EnrolRequest -> EnrolResponse) needs a registration
	// token in the Authorization header, "Bearer <token>", unless the key is
	// known. Enrolling again with a key changes nothing.
	PathEnrol = "/v1/enrol"
	// PathPlan (GET ?after=REVISION&boot=BOOTID -> Plan) is the long poll. It answers as
	// soon as the plan's revision differs from the given one, or with 204 within
	// PollTimeout. If a boot ID polls again after another one has polled, two machines
	// use the key, and the host is locked.
	PathPlan = "/v1/plan"
	// PathBootstrap (GET ?operation=ID -> bytes) returns the bootstrap data of
	// the host's current Bootstrap operation. Header HeaderBootstrapFormat has
	// its format. It can be repeated until the host has reported the operation's
	// end, and is refused afterwards.
	PathBootstrap = "/v1/bootstrap"
	// PathReport (POST Report -> 204) records facts. They are durable when it
	// answers.
	PathReport = "/v1/report"
	// PathRotate (POST RotateRequest -> 204) announces the host's next key. The
	// current key is accepted until the next one was used.
	PathRotate = "/v1/rotate"
	// PathAgent (GET ?sha256=HEX -> bytes) returns the agent binary that the plan's
	// Desired.Agent names.
	PathAgent = "/v1/agent"
	// PathBundle (GET ?sha256=HEX -> bytes, with ranges) returns the bundle of Kubernetes
	// that the plan's Desired.Bundle or Operation.NodeUpgrade names.
	PathBundle = "/v1/bundle"
	// PathInstall (GET -> a shell script) installs the agent on a host that has none. It
	// needs no key and no token.
	PathInstall = "/v1/install"
	// PathInstallAgent (GET ?arch=ARCHITECTURE -> bytes, with ranges) returns the agent that
	// the script installs. It needs no key and no token.
	PathInstallAgent = "/v1/install/agent"
	// PathTunnel (GET ?boot=BOOTID, upgrade to TunnelProtocol -> 101) turns an HTTP/1.1
	// connection of its own into the host's tunnel. Only a host whose plan has
	// Desired.Tunnel gets one, for the boot that polls; another boot is answered with 409.
	// A newer tunnel of the host replaces the former one.
	PathTunnel = "/v1/tunnel"
	// PathEtcdSnapshotUpload (POST EtcdSnapshotGrantRequest -> EtcdSnapshotGrant) permits the
	// upload of the snapshot that the plan's Desired.EtcdSnapshotUpload names.
	PathEtcdSnapshotUpload = "/v1/etcd-snapshot-upload"
	// PathEtcdSnapshotFetch (POST EtcdSnapshotFetchRequest -> EtcdSnapshotFetchGrant) permits
	// the download of the snapshot that the plan's EtcdRestore begins with.
	PathEtcdSnapshotFetch = "/v1/etcd-snapshot-fetch"
	// PathLog (POST ?request=ID HostLog -> 204) answers the request of the plan's Desired.Log.
	// The answer is durable then. Another ID is answered with 404.
	PathLog = "/v1/log"
)

// TunnelProtocol is what PathTunnel upgrades to (header Upgrade): HTTP/2 in the reverse
// direction, as in package tunnel.
const TunnelProtocol = "elemental-tunnel/1"

// TargetAPIServer is the target of a tunnel's streams: the API server of the host itself;
// on a worker, one of its cluster through the host's forwarder.
const TargetAPIServer = "kube-apiserver"

// HeaderHome is a request's header with the namespace and name, NAMESPACE/NAME, that the
// host was last enrolled as. It only selects among several hosts with the caller's key.
const HeaderHome = "Elemental-Home"

// HeaderBootstrapFormat has the format of bootstrap data: FormatCloudConfig or
// FormatIgnition, as in the bootstrap contract of Cluster API.
const HeaderBootstrapFormat = "Elemental-Bootstrap-Format"

// Formats of bootstrap data.
const (
	FormatCloudConfig = "cloud-config"
	FormatIgnition    = "ignition"
)

// Limits that both sides enforce.
const (
	// PollTimeout bounds a long poll. Whether the connection is alive is detected far
	// sooner, by TCP keep-alive and, through proxies, by HTTP/2 pings.
	PollTimeout = 10 * time.Minute
	// MaxRequestBytes bounds the body of any request but that of PathLog.
	MaxRequestBytes = 256 << 10
	// MaxBootstrapBytes bounds bootstrap data; a Secret holds at most 1 MiB.
	MaxBootstrapBytes = 1 << 20
	// MaxMessageBytes bounds OperationReport.Message.
	MaxMessageBytes = 1 << 10
	// MaxDevices bounds each list of the inventory and the addresses.
	MaxDevices = 64
	// MaxAgentBytes bounds an agent binary.
	MaxAgentBytes = 64 << 20
	// MaxBundleBytes bounds a bundle of Kubernetes.
	MaxBundleBytes = 4 << 30
	// MaxBundleSources bounds Bundle.Sources.
	MaxBundleSources = 8
	// MaxProbeMessageBytes bounds Probe.Message.
	MaxProbeMessageBytes = 256
	// MaxFiles bounds Desired.Files, and MaxFileBytes the content of each file.
	MaxFiles     = 8
	MaxFileBytes = 64 << 10
	// MaxBackends bounds LocalEndpoint.Backends and Redirect.Servers.
	MaxBackends = 32
	// MaxLeftovers bounds Cleanliness.Leftovers.
	MaxLeftovers = 16
	// MaxEtcdSnapshots bounds EtcdSnapshot.Keep and EtcdSnapshotReport.Snapshots.
	MaxEtcdSnapshots = 16
	// MaxRecipients bounds EtcdSnapshotUpload.Recipients.
	MaxRecipients = 8
	// MaxObjectName bounds the name of an uploaded snapshot, as S3 does.
	MaxObjectName = 1024
	// MaxLogBytes bounds HostLog.Text: a Secret holds at most 1 MiB.
	MaxLogBytes = 1000 << 10
	// MaxLogRequestBytes bounds the body of PathLog, in which the text is in base64.
	MaxLogRequestBytes = MaxLogBytes/3*4 + 16<<10
	// LogTimeout bounds an attempt to send a log.
	LogTimeout = 2 * time.Minute
	// MaxUploadBytes bounds an uploaded snapshot: S3 takes no larger object in one request.
	MaxUploadBytes = 5 << 30
)

// Hello describes an agent. It is part of EnrolRequest and Report.
type Hello struct {
	Protocol     int          `json:"protocol"`
	AgentVersion string       `json:"agentVersion"`
	Capabilities []Capability `json:"capabilities,omitempty"`
	// BootID changes with every boot of the host.
	BootID string `json:"bootID,omitempty"`
	// Time is the host's clock. The manager shows how far it is off.
	Time *time.Time `json:"time,omitempty"`
	// TrustDigest identifies the CA bundle in use. See the function TrustDigest.
	TrustDigest string `json:"trustDigest,omitempty"`
}

// TrustDigest identifies a CA bundle by the first 16 hex digits of the SHA-256 of
// its PEM.
func TrustDigest(bundle string) string {
	sum := sha256.Sum256([]byte(bundle))
	return hex.EncodeToString(sum[:8])
}

// EnrolRequest enrols the key of the TLS client certificate. The body contains only
// assertions of the host.
type EnrolRequest struct {
	Hello       Hello       `json:"hello"`
	Inventory   Inventory   `json:"inventory"`
	Addresses   []Address   `json:"addresses,omitempty"`
	Cleanliness Cleanliness `json:"cleanliness"`
	// Previous is set for re-adoption, if the host was enrolled before. Such a host
	// needs no token, and only an administrator approves it.
	Previous *Previous `json:"previous,omitempty"`
}

// Previous is the former identity that a host reports.
type Previous struct {
	HostID    string `json:"hostID"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Cleanliness reports leftovers of former nodes. The agent looks for them at its
// start, before a bootstrap and after a reset.
type Cleanliness struct {
	Clean bool `json:"clean"`
	// Leftovers describes the first MaxLeftovers that were found.
	Leftovers []string `json:"leftovers,omitempty"`
}

// EnrolResponse identifies the ElementalHost of the key.
type EnrolResponse struct {
	// HostID identifies the host and never changes.
	HostID string `json:"hostID"`
	// Namespace and Name of the ElementalHost are for logs.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Approved is false while the host waits for approval. A pending host polls, but
	// its plan is empty.
	Approved bool `json:"approved"`
	// Generation is the number to send in RotateRequest. It starts at 1.
	Generation int64 `json:"generation,omitempty"`
	// ServerTime is the server's clock. The agent stores it as a lower bound
	// of the current time.
	ServerTime time.Time `json:"serverTime"`
}

// Plan is a host's desired state, which is applied as often as needed, and an
// operation, which runs once.
type Plan struct {
	// Revision identifies the content of the plan. Only the long poll uses it.
	Revision string  `json:"revision"`
	Desired  Desired `json:"desired"`
	// Operation is nil when there is nothing to do.
	Operation *Operation `json:"operation,omitempty"`
	// ServerTime is the server's clock when it answered. It is not part of Revision.
	ServerTime time.Time `json:"serverTime"`
	// ReportEndpoint makes the host report the endpoint now, even if nothing has changed.
	// It is not part of Revision, so the plan may be the one that the host has.
	ReportEndpoint bool `json:"reportEndpoint,omitempty"`
}

// Desired is a state that the agent maintains.
type Desired struct {
	// Hostname is set before a bootstrap begins. Empty: it is not changed.
	Hostname string `json:"hostname,omitempty"`
	// ProviderID is the Node's spec.providerID. Empty: the host is not a Node.
	ProviderID string `json:"providerID,omitempty"`
	// NodeLabels are labels of the Node. The agent sets them when no operation runs, and
	// removes none. Only labels that a kubelet may set work.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Servers are the server URLs. The agent tries them in turn.
	Servers []string `json:"servers,omitempty"`
	// TrustBundle has the CA certificates that serving certificates chain to, PEM.
	TrustBundle string `json:"trustBundle,omitempty"`
	// Agent is the version that the agent updates itself to. Nil: it does not.
	Agent *AgentRelease `json:"agent,omitempty"`
	// Endpoint is the control plane endpoint of the host's cluster. Nil: the manager
	// does not manage it, and the agent reverts what it applied for one.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Files are written before a bootstrap runs its first command, and maintained.
	// Files that are no longer desired are removed, so an empty list, which is not
	// nil, removes all. Nil: the manager does not know, and all files stay. An object
	// that is absent during a restore or move must not remove a cluster's virtual IP.
	// A reset removes all files in any case.
	Files []File `json:"files,omitzero"`
	// Tunnel makes the agent keep a tunnel open (PathTunnel).
	Tunnel bool `json:"tunnel,omitempty"`
	// Bundle is the bundle of Kubernetes that the agent keeps unpacked on the host. A
	// Bootstrap installs it if the host lacks the programs of Kubernetes. Nil: the agent
	// removes what it has unpacked, but nothing that it has installed.
	Bundle *Bundle `json:"bundle,omitempty"`
	// EtcdSnapshot is the snapshot of etcd that the agent takes, unless the host has it.
	// Nil: none. Snapshots that the host has stay.
	EtcdSnapshot *EtcdSnapshot `json:"etcdSnapshot,omitempty"`
	// EtcdSnapshotUpload is the snapshot that the agent uploads. Nil: none. An upload that has
	// begun is completed.
	EtcdSnapshotUpload *EtcdSnapshotUpload `json:"etcdSnapshotUpload,omitempty"`
	// Log asks for the log of an operation. Nil: none is asked for.
	Log *LogRequest `json:"log,omitempty"`
}

// File is a file that the agent maintains. It creates the directory if needed.
type File struct {
	// Path is absolute.
	Path string `json:"path"`
	// Mode has permission bits only.
	Mode    uint32 `json:"mode"`
	Content string `json:"content"`
}

// AgentRelease is an agent binary for the host's architecture.
type AgentRelease struct {
	Version string `json:"version"`
	// SHA256 of the binary, in hex.
	SHA256 string `json:"sha256"`
}

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
	// ClusterName and MachineName are for the host's log.
	ClusterName string `json:"clusterName,omitempty"`
	MachineName string `json:"machineName,omitempty"`
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

// RotateRequest announces the key that replaces the key of the TLS connection.
type RotateRequest struct {
	// PublicKey is the new key, DER-encoded Subject Public Key Info.
	PublicKey []byte `json:"publicKey"`
	// Signature of the old key's fingerprint (identity.Fingerprint) by the new private
	// key proves possession of the new key and prevents replay.
	Signature []byte `json:"signature"`
	// Generation is the agent's number of keys. An outdated copy of the state directory
	// is detected by it.
	Generation int64 `json:"generation"`
}
