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
}

// EndpointReport is what the host knows of Desired.Endpoint, as a whole. A blank
// one says that it follows none.
type EndpointReport struct {
	// Kubeconfigs is the endpoint, host:port, that all kubeconfigs of the host use
	// and the kubelet runs with.
	Kubeconfigs string `json:"kubeconfigs,omitempty"`
	// Workload is the endpoint, host:port, that the workload cluster's own objects
	// name, on a host with Endpoint.Publish.
	Workload string `json:"workload,omitempty"`
	// Rejects is the former endpoint, host:port, that is refused to others.
	Rejects string `json:"rejects,omitempty"`
	// Message says what could not be done, in at most MaxMessageBytes.
	Message string `json:"message,omitempty"`
	// Probe and APIServer are there on a host with Endpoint.Probe.
	Probe     *Probe     `json:"probe,omitempty"`
	APIServer *APIServer `json:"apiServer,omitempty"`
}

// Probe is whether an API server answers. It is reported when Reachable changes.
type Probe struct {
	// Endpoint that was probed, host:port.
	Endpoint  string `json:"endpoint"`
	Reachable bool   `json:"reachable"`
	// ForSeconds is for how long it had been so when the report was made.
	ForSeconds int32 `json:"forSeconds,omitempty"`
	// Message is the error, in at most MaxProbeMessageBytes.
	Message string `json:"message,omitempty"`
}

// APIServer is the one on the host itself.
type APIServer struct {
	// Ready: it answers and says that it is ready.
	Ready bool `json:"ready"`
	// ForSeconds is for how long it had been so when the report was made.
	ForSeconds int32 `json:"forSeconds,omitempty"`
	// CertificateNames are the IP addresses and DNS names of its serving
	// certificate, sorted, at most MaxDevices.
	CertificateNames []string `json:"certificateNames,omitempty"`
}

// AgentUpdate is how an update of the agent went.
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
	// Erased is what became of each disk, on a Reset with Operation.Erase.
	Erased []ErasedDisk `json:"erased,omitempty"`
}

// ErasureResult is what became of a disk.
type ErasureResult string

// Erasure results.
const (
	Erased       ErasureResult = "Erased"
	ErasureKept  ErasureResult = "Kept"
	ErasureFails ErasureResult = "Failed"
)

// ErasedDisk is what became of one disk.
type ErasedDisk struct {
	Name      string        `json:"name"`
	Serial    string        `json:"serial,omitempty"`
	SizeBytes int64         `json:"sizeBytes,omitempty"`
	Result    ErasureResult `json:"result"`
	Message   string        `json:"message,omitempty"`
}
