package protocol

import "time"

// Report carries facts that changed since the last acknowledged one. Nil and
// empty fields mean "unchanged".
type Report struct {
	Hello       *Hello            `json:"hello,omitempty"`
	Inventory   *Inventory        `json:"inventory,omitempty"`
	Addresses   []Address         `json:"addresses,omitempty"`
	Cleanliness *Cleanliness      `json:"cleanliness,omitempty"`
	Operations  []OperationReport `json:"operations,omitempty"`
	AgentUpdate *AgentUpdate      `json:"agentUpdate,omitempty"`
	Endpoint    *EndpointReport   `json:"endpoint,omitempty"`
	Bundle      *BundleReport     `json:"bundle,omitempty"`
	// EtcdSnapshots is always complete; an empty one means that the host has none.
	EtcdSnapshots *EtcdSnapshotReport `json:"etcdSnapshots,omitempty"`
	// EtcdSnapshotUpload says what has been uploaded, or why that failed. Nil: nothing new.
	EtcdSnapshotUpload *EtcdSnapshotUploadReport `json:"etcdSnapshotUpload,omitempty"`
	// Certificates is always complete; an empty one means that the host has none.
	Certificates *CertificateReport `json:"certificates,omitempty"`
}

// BundleReport is the state of Desired.Bundle on the host. An empty one means that the
// host has no bundle.
type BundleReport struct {
	SHA256  string      `json:"sha256,omitempty"`
	Version string      `json:"version,omitempty"`
	State   BundleState `json:"state,omitempty"`
	// Message is the progress, or explains a failure, in at most MaxMessageBytes.
	Message string `json:"message,omitempty"`
}

// BundleState is the state of a bundle on the host.
type BundleState string

// Bundle states.
const (
	// BundleStaging: the host fetches, verifies or unpacks the bundle.
	BundleStaging BundleState = "Staging"
	// BundleStaged: the bundle is verified and unpacked.
	BundleStaged BundleState = "Staged"
	// BundleFailed: the last attempt failed. The agent tries again.
	BundleFailed BundleState = "Failed"
)

// EndpointReport is the host's state of Desired.Endpoint. It is always complete; an
// empty one means that the host has no endpoint.
type EndpointReport struct {
	// Kubeconfigs is the endpoint, host:port, in all kubeconfigs of the host, with which
	// the kubelet runs.
	Kubeconfigs string `json:"kubeconfigs,omitempty"`
	// Workload is the endpoint, host:port, in the workload cluster's own objects. It is
	// set on a host with Endpoint.Publish.
	Workload string `json:"workload,omitempty"`
	// Rejects is the former endpoint, host:port, to which the host rejects connections
	// from elsewhere.
	Rejects string `json:"rejects,omitempty"`
	// Local is the endpoint, host:port, that the host resolves to its own forwarder, which
	// listens. It is set on a host with Endpoint.Local.
	Local string `json:"local,omitempty"`
	// Message describes what failed, in at most MaxMessageBytes.
	Message string `json:"message,omitempty"`
	// Probe and APIServer are set on a host with Endpoint.Probe.
	Probe     *Probe     `json:"probe,omitempty"`
	APIServer *APIServer `json:"apiServer,omitempty"`
}

// Probe is the result of probing an API server. It is reported when Reachable changes.
type Probe struct {
	// Endpoint that was probed, host:port.
	Endpoint  string `json:"endpoint"`
	Reachable bool   `json:"reachable"`
	// ForSeconds is the age of the result when the report was made.
	ForSeconds int32 `json:"forSeconds,omitempty"`
	// Message is the error, in at most MaxProbeMessageBytes.
	Message string `json:"message,omitempty"`
}

// APIServer is the state of the API server on the host itself.
type APIServer struct {
	// Ready is true if its /readyz succeeds.
	Ready bool `json:"ready"`
	// ForSeconds is the age of the result when the report was made.
	ForSeconds int32 `json:"forSeconds,omitempty"`
	// Address is where other hosts reach it, IP:port. It is one of the host's addresses.
	Address string `json:"address,omitempty"`
	// CertificateNames are the IP addresses and DNS names of its serving
	// certificate, sorted, at most MaxDevices.
	CertificateNames []string `json:"certificateNames,omitempty"`
}

// AgentUpdate is the result of an update of the agent.
type AgentUpdate struct {
	Version string         `json:"version"`
	State   OperationState `json:"state"`
	Message string         `json:"message,omitempty"`
}

// OperationReport is the progress or result of one operation.
type OperationReport struct {
	Type  OperationType  `json:"type"`
	ID    string         `json:"id"`
	State OperationState `json:"state"`
	// Step is the step that runs or failed, for example "runcmd".
	Step string `json:"step,omitempty"`
	// Message explains a failure in at most MaxMessageBytes, without secrets;
	// warnings of a success; empty otherwise.
	Message    string     `json:"message,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// Erased has the result for each disk, on a Reset with Operation.Erase.
	Erased []ErasedDisk `json:"erased,omitempty"`
}

// ErasureResult is the result of erasing a disk.
type ErasureResult string

// Erasure results.
const (
	Erased       ErasureResult = "Erased"
	ErasureKept  ErasureResult = "Kept"
	ErasureFails ErasureResult = "Failed"
)

// ErasedDisk is a disk and the result of erasing it.
type ErasedDisk struct {
	Name      string        `json:"name"`
	Serial    string        `json:"serial,omitempty"`
	SizeBytes int64         `json:"sizeBytes,omitempty"`
	Result    ErasureResult `json:"result"`
	Message   string        `json:"message,omitempty"`
}
