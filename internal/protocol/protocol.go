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
	// already known: enrolling twice with one key is the same as once.
	PathEnrol = "/v1/enrol"
	// PathPlan (GET ?after=REVISION&boot=BOOTID -> Plan) is the long-poll. It answers as
	// soon as the plan's revision differs from the given one, else 204 within
	// PollTimeout. A boot ID that polls again after another has polled is that
	// of a copy: it locks the host.
	PathPlan = "/v1/plan"
	// PathBootstrap (GET ?operation=ID -> bytes) returns the bootstrap data of
	// the host's current Bootstrap operation; header HeaderBootstrapFormat
	// names its format. It can be repeated until the operation's end was
	// reported, and is refused afterwards.
	PathBootstrap = "/v1/bootstrap"
	// PathReport (POST Report -> 204) records facts. When it has returned, they
	// are durable.
	PathReport = "/v1/report"
	// PathRotate (POST RotateRequest -> 204) replaces the host's key. The old key
	// stays good until the new one has been used.
	PathRotate = "/v1/rotate"
	// PathAgent (GET ?sha256=HEX -> bytes) returns the agent's binary that the
	// plan's Desired.Agent names.
	PathAgent = "/v1/agent"
)

// HeaderBootstrapFormat carries the bootstrap data's format: FormatCloudConfig
// or FormatIgnition, as in the bootstrap contract of Cluster API.
const HeaderBootstrapFormat = "Elemental-Bootstrap-Format"

// Formats of bootstrap data.
const (
	FormatCloudConfig = "cloud-config"
	FormatIgnition    = "ignition"
)

// Limits that both sides keep to.
const (
	// PollTimeout is how long the server holds a plan request at most. TCP and, through
	// proxies, HTTP/2 tell in far less time whether the connection is alive.
	PollTimeout = 10 * time.Minute
	// MaxRequestBytes bounds the body of any request.
	MaxRequestBytes = 256 << 10
	// MaxBootstrapBytes bounds bootstrap data; a Secret holds at most 1 MiB.
	MaxBootstrapBytes = 1 << 20
	// MaxMessageBytes bounds OperationReport.Message.
	MaxMessageBytes = 1 << 10
	// MaxDevices bounds each list of the inventory and the addresses.
	MaxDevices = 64
	// MaxAgentBytes bounds the agent's binary.
	MaxAgentBytes = 64 << 20
	// MaxProbeMessageBytes bounds Probe.Message.
	MaxProbeMessageBytes = 256
	// MaxFiles bounds Desired.Files, MaxFileBytes the content of one.
	MaxFiles     = 8
	MaxFileBytes = 64 << 10
	// MaxLeftovers bounds Cleanliness.Leftovers.
	MaxLeftovers = 16
)

// Capability is something an agent can do.
type Capability string

// Capabilities of this version's agent.
const (
	CapabilityBootstrap Capability = "Bootstrap"
	CapabilityReset     Capability = "Reset"
	CapabilityRotate    Capability = "Rotate"
	CapabilityReboot    Capability = "Reboot"
	// CapabilityUpgrade: the agent drives the elemental CLI.
	CapabilityUpgrade Capability = "Upgrade"
	// CapabilityErase: a Reset with Operation.Erase erases data disks.
	CapabilityErase Capability = "Erase"
	// CapabilityUpdate: the agent keeps itself at Desired.Agent.
	CapabilityUpdate Capability = "Update"
	// CapabilityEndpoint: the agent keeps Desired.Endpoint.
	CapabilityEndpoint Capability = "Endpoint"
	// CapabilityFiles: the agent keeps Desired.Files.
	CapabilityFiles Capability = "Files"
)

// Hello is what an agent says of itself in EnrolRequest and Report.
type Hello struct {
	Protocol     int          `json:"protocol"`
	AgentVersion string       `json:"agentVersion"`
	Capabilities []Capability `json:"capabilities,omitempty"`
	// BootID changes with every boot of the host.
	BootID string `json:"bootID,omitempty"`
	// Time is the host's clock, for people who wonder about its logs.
	Time *time.Time `json:"time,omitempty"`
	// TrustDigest names the CA bundle in use, as TrustDigest returns it.
	TrustDigest string `json:"trustDigest,omitempty"`
}

// TrustDigest names a CA bundle: the first 16 hex digits of the SHA-256 of its
// PEM.
func TrustDigest(bundle string) string {
	sum := sha256.Sum256([]byte(bundle))
	return hex.EncodeToString(sum[:8])
}

// EnrolRequest asks for a place in the fleet. The key is that of the TLS
// client certificate; nothing in the body is trusted for more than facts.
type EnrolRequest struct {
	Hello       Hello       `json:"hello"`
	Inventory   Inventory   `json:"inventory"`
	Addresses   []Address   `json:"addresses,omitempty"`
	Cleanliness Cleanliness `json:"cleanliness"`
	// Previous is who the host was when a manager last knew it. Such a host needs
	// no token, and is never let in without an administrator.
	Previous *Previous `json:"previous,omitempty"`
}

// Previous is who a host says it was.
type Previous struct {
	HostID    string `json:"hostID"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Cleanliness is what the agent found of former nodes: at its start, before a
// bootstrap and after a reset.
type Cleanliness struct {
	Clean bool `json:"clean"`
	// Leftovers names what was found, the first MaxLeftovers.
	Leftovers []string `json:"leftovers,omitempty"`
}

// EnrolResponse tells a host who it is.
type EnrolResponse struct {
	// HostID is the host's identity for ever.
	HostID string `json:"hostID"`
	// Namespace and Name are those of the ElementalHost; for people.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Approved is false while an administrator has not yet let the host in. A
	// pending host polls; its plan is empty.
	Approved bool `json:"approved"`
	// Generation is the one to send in RotateRequest; it is counted from 1.
	Generation int64 `json:"generation,omitempty"`
	// ServerTime is the server's clock; the agent's "last time seen".
	ServerTime time.Time `json:"serverTime"`
}

// Plan is what a host is to be (Desired: level-triggered, applied as often as
// need be) and what it is to do once (Operation).
type Plan struct {
	// Revision names this plan's content; it only serves the long-poll.
	Revision string  `json:"revision"`
	Desired  Desired `json:"desired"`
	// Operation is nil when there is nothing to do.
	Operation *Operation `json:"operation,omitempty"`
	// ServerTime is the server's clock when it answered; not part of Revision.
	ServerTime time.Time `json:"serverTime"`
}

// Desired is a state that the agent keeps up.
type Desired struct {
	// Hostname is set before a bootstrap begins. Empty: leave it alone.
	Hostname string `json:"hostname,omitempty"`
	// ProviderID is the Node's spec.providerID once the host is a Node. Empty:
	// the host is not one.
	ProviderID string `json:"providerID,omitempty"`
	// Servers are base URLs of the agent API, all tried in turn.
	Servers []string `json:"servers,omitempty"`
	// TrustBundle is PEM: the roots that the servers' certificates chain to.
	TrustBundle string `json:"trustBundle,omitempty"`
	// Agent is the version the agent is to be. Nil: as it is.
	Agent *AgentRelease `json:"agent,omitempty"`
	// Endpoint is the cluster's endpoint that the Node follows. Nil: it is not the
	// manager's business, and what was done for it is undone.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Files are written before a bootstrap runs its first command, and kept. One
	// that is not desired any more is removed, so an empty list, which is not nil,
	// removes all. Nil: the manager doesn't know, and all stay as they are: what is
	// absent, because of a restore or a move, takes no address off a cluster. A
	// reset removes all in any case.
	Files []File `json:"files,omitzero"`
}

// Endpoint is where a workload cluster's API server answers, and what a host of
// the cluster does about it.
type Endpoint struct {
	// Host is an IP address or DNS name.
	Host string `json:"host"`
	Port int32  `json:"port"`
	// Former are host:port pairs that this endpoint stands in for. Nothing else is
	// ever replaced.
	Former []string `json:"former,omitempty"`
	// Since is when the endpoint became this one, by the manager's clock. What was
	// published of a later one is left alone. It comes with Publish; zero: not known.
	Since time.Time `json:"since,omitzero"`
	// VIP: Host is an address that kube-vip puts on an interface of control-plane
	// hosts. A reset takes it off.
	VIP bool `json:"vip,omitempty"`
	// Probe has the host say whether the endpoint and its own API server answer.
	Probe bool `json:"probe,omitempty"`
	// Publish has the host keep the workload cluster's own objects naming the
	// endpoint, through its own API server.
	Publish bool `json:"publish,omitempty"`
	// Reject is a former endpoint, host:port, of this host: connections to it
	// from elsewhere are refused. Empty: none is.
	Reject string `json:"reject,omitempty"`
}

// File is a file that the agent keeps. Its directory is made if need be.
type File struct {
	// Path is absolute.
	Path string `json:"path"`
	// Mode has permission bits only.
	Mode    uint32 `json:"mode"`
	Content string `json:"content"`
}

// AgentRelease is a version of the agent for the host's architecture.
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
	// OperationReset brings the host back to what it was before.
	OperationReset OperationType = "Reset"
	// OperationReboot reboots the host once.
	OperationReboot OperationType = "Reboot"
	// OperationUpgrade upgrades the operating system to Operation.Image, with a
	// reboot into it.
	OperationUpgrade OperationType = "Upgrade"
)

// Operation runs at most once per Type and ID; the agent remembers what it ran.
type Operation struct {
	Type OperationType `json:"type"`
	ID   string        `json:"id"`
	// ClusterName and MachineName are for people reading the host's log.
	ClusterName string `json:"clusterName,omitempty"`
	MachineName string `json:"machineName,omitempty"`
	// Erase, on a Reset, has the data disks erased: EraseZero or EraseDiscard.
	Erase string `json:"erase,omitempty"`
	// Image, on an Upgrade, is a source of the elemental CLI.
	Image string `json:"image,omitempty"`
}

// Methods of Operation.Erase.
const (
	EraseZero    = "Zero"
	EraseDiscard = "Discard"
)

// OperationState is how far an operation is.
type OperationState string

// Operation states. Succeeded, Failed and Unsupported are final for a
// Bootstrap; a Reset that Failed is tried again by the agent.
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

// RotateRequest replaces the key of the connection it arrives on.
type RotateRequest struct {
	// PublicKey is the new key, DER-encoded Subject Public Key Info.
	PublicKey []byte `json:"publicKey"`
	// Signature is made by the new private key over the old key's fingerprint
	// (identity.Fingerprint), which proves possession and prevents replay.
	Signature []byte `json:"signature"`
	// Generation is the one the agent is at; a copy of the state directory
	// that lags behind is found out by it.
	Generation int64 `json:"generation"`
}

// Problem is an error, RFC 9457 (application/problem+json).
type Problem struct {
	// Type is one of the Problem… constants, or "about:blank".
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Problem types that an agent acts on; all others are shown and retried.
const (
	// ProblemUnknownHost: nobody here knows this key. The agent keeps its key,
	// runs nothing, resets nothing and retries; it may enrol again.
	ProblemUnknownHost = "urn:elemental:unknown-host"
	// ProblemRevoked: the host was shut out; only a new enrolment helps.
	ProblemRevoked = "urn:elemental:revoked"
	// ProblemTokenRefused: the token is unknown, expired or used up.
	ProblemTokenRefused = "urn:elemental:token-refused"
	// ProblemNoOperation: the bootstrap data asked for is not (or no longer)
	// this host's to have.
	ProblemNoOperation = "urn:elemental:no-operation"
	// ProblemStaleGeneration: another copy of this identity is in use.
	ProblemStaleGeneration = "urn:elemental:stale-generation"
	// ProblemLocked: two machines use this identity; a person has to decide.
	ProblemLocked = "urn:elemental:locked"
)
