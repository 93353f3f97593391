package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostEndpoint is what a host reports about the control plane endpoint of its cluster.
// It is written only when it changes.
type HostEndpoint struct {
	// kubeconfigs is the endpoint (host:port) in the kubeconfigs of the host, including
	// that of the kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=520
	Kubeconfigs string `json:"kubeconfigs,omitempty"`
	// workload is the endpoint (host:port) in the objects cluster-info, kubeadm-config
	// and kube-proxy of the workload cluster. Only the host that updates those objects
	// reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=520
	Workload string `json:"workload,omitempty"`
	// rejects is the former endpoint (host:port) at which the host rejects connections
	// of other hosts.
	// +optional
	// +kubebuilder:validation:MaxLength=520
	Rejects string `json:"rejects,omitempty"`
	// local is the endpoint (host:port) of type Tunnel that the host resolves to its own
	// forwarder, which listens.
	// +optional
	// +kubebuilder:validation:MaxLength=520
	Local string `json:"local,omitempty"`
	// message describes what failed on the host.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// probe is whether the host can reach the endpoint. Only control-plane hosts report
	// it.
	// +optional
	Probe *EndpointProbe `json:"probe,omitempty"`
	// apiServer is the state of the host's own API server. Only control-plane hosts
	// report it.
	// +optional
	APIServer *HostAPIServer `json:"apiServer,omitempty"`
}

// ProbeResult is the result of a probe.
// +kubebuilder:validation:Enum=Reachable;Unreachable
type ProbeResult string

// Probe results.
const (
	ProbeReachable   ProbeResult = "Reachable"
	ProbeUnreachable ProbeResult = "Unreachable"
)

// EndpointProbe is whether a host can reach the API server at an endpoint.
type EndpointProbe struct {
	// endpoint that was probed (host:port).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=520
	Endpoint string `json:"endpoint,omitempty"`
	// result of the last probes.
	// +required
	Result ProbeResult `json:"result,omitempty"`
	// since is when probes began to have this result, by the manager's clock.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// message is the error if the endpoint is unreachable.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// HostAPIServer is the API server on a control-plane host.
type HostAPIServer struct {
	// result is Reachable if the API server answers and is ready.
	// +required
	Result ProbeResult `json:"result,omitempty"`
	// since is when probes began to have this result, by the manager's clock.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// address is where other hosts of the cluster reach the API server (IP:port). It is one
	// of the host's own addresses.
	// +optional
	// +kubebuilder:validation:MaxLength=53
	Address string `json:"address,omitempty"`
	// certificateNames are the IP addresses and DNS names in its serving certificate.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	CertificateNames []string `json:"certificateNames,omitempty"`
}
