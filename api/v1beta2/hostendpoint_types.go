package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostEndpoint is what a host of a cluster says of the cluster's endpoint. It is
// written when it changes only.
type HostEndpoint struct {
	// kubeconfigs is the endpoint, host:port, that the kubelet and all kubeconfigs
	// of the host use where they use one.
	// +optional
	// +kubebuilder:validation:MaxLength=520
	Kubeconfigs string `json:"kubeconfigs,omitempty"`
	// workload is the endpoint, host:port, that the workload cluster's own objects
	// (cluster-info, kubeadm-config, kube-proxy) name, where the host looks after
	// them.
	// +optional
	// +kubebuilder:validation:MaxLength=520
	Workload string `json:"workload,omitempty"`
	// rejects is the former endpoint, host:port, that the host refuses to others.
	// +optional
	// +kubebuilder:validation:MaxLength=520
	Rejects string `json:"rejects,omitempty"`
	// message says what the host could not do.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// probe is whether the endpoint answers this host; control-plane hosts only.
	// +optional
	Probe *EndpointProbe `json:"probe,omitempty"`
	// apiServer is the host's own; control-plane hosts only.
	// +optional
	APIServer *HostAPIServer `json:"apiServer,omitempty"`
}

// ProbeResult is what came of a probe.
// +kubebuilder:validation:Enum=Reachable;Unreachable
type ProbeResult string

// Probe results.
const (
	ProbeReachable   ProbeResult = "Reachable"
	ProbeUnreachable ProbeResult = "Unreachable"
)

// EndpointProbe is whether an API server answers.
type EndpointProbe struct {
	// endpoint that was probed, host:port.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=520
	Endpoint string `json:"endpoint,omitempty"`
	// result of the last probes.
	// +required
	Result ProbeResult `json:"result,omitempty"`
	// since is when that began, by the manager's clock.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// message is the error of an unreachable endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// HostAPIServer is the API server on a control-plane host.
type HostAPIServer struct {
	// result tells whether it answers and says that it is ready.
	// +required
	Result ProbeResult `json:"result,omitempty"`
	// since is when that began, by the manager's clock.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// certificateNames are the IP addresses and DNS names that its serving
	// certificate is good for.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	CertificateNames []string `json:"certificateNames,omitempty"`
}
