package protocol

import "time"

// Endpoint is the control plane endpoint of a workload cluster, and what a host of
// the cluster has to do for it.
type Endpoint struct {
	// Host is an IP address or DNS name.
	Host string `json:"host"`
	Port int32  `json:"port"`
	// Former are the host:port pairs that this endpoint replaces. The agent replaces no
	// others.
	Former []string `json:"former,omitempty"`
	// Since is when the endpoint was chosen, by the manager's clock. A later endpoint
	// that is already published stays. It is set with Publish; zero: unknown.
	Since time.Time `json:"since,omitzero"`
	// VIP: Host is a virtual IP that kube-vip adds to an interface of a control-plane
	// host. A reset removes it.
	VIP bool `json:"vip,omitempty"`
	// Probe makes the host report whether the endpoint and its own API server answer.
	Probe bool `json:"probe,omitempty"`
	// Publish makes the host write the endpoint into the workload cluster's own
	// objects, through its own API server.
	Publish bool `json:"publish,omitempty"`
	// Reject is a former endpoint, host:port, on this host. The host rejects
	// connections to it from elsewhere. Empty: none.
	Reject string `json:"reject,omitempty"`
	// Local makes the host resolve Host to itself, and forward connections to it to the
	// API servers of the cluster. It is sent before a bootstrap, too: the bootstrap needs
	// the endpoint. A reset removes it. Nil: the host does neither.
	Local *LocalEndpoint `json:"local,omitempty"`
}

// LocalEndpoint is an endpoint that each host of a cluster serves for itself, on a
// loopback address.
type LocalEndpoint struct {
	// Backends are API servers of the cluster, IP:port, at most MaxBackends. The host's
	// own API server comes before them and is not listed for itself.
	Backends []string `json:"backends,omitempty"`
}
