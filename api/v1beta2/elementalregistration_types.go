package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElementalRegistrationSpec says how hosts enrol and how their ElementalHosts are
// created.
type ElementalRegistrationSpec struct {
	// hostTemplate is the template of the ElementalHosts of hosts that enrol. A host
	// can't influence its labels and annotations.
	// +optional
	HostTemplate HostTemplate `json:"hostTemplate,omitempty,omitzero"`

	// token says how long the tokens that the provider creates are valid and how often
	// they can be used.
	// +optional
	// +kubebuilder:default={}
	Token TokenPolicy `json:"token,omitempty,omitzero"`

	// approval says whether hosts that enrol are approved automatically or by an
	// administrator. Defaults to Automatic.
	// +optional
	// +kubebuilder:default=Automatic
	Approval ApprovalPolicy `json:"approval,omitempty"`

	// readoption says what happens to a host that enrolled before, is not known here,
	// and has no token. Pending creates a pending ElementalHost in this namespace, which
	// an administrator must approve. Anybody can ask for that, so use it only while hosts
	// are to come back. Denied rejects the host, unless another registration of the
	// namespace has the value Pending. Defaults to Denied.
	// +optional
	// +kubebuilder:default=Denied
	// +kubebuilder:validation:Enum=Pending;Denied
	Readoption ReadoptionPolicy `json:"readoption,omitempty"`

	// maxPendingHosts is the maximum number of pending hosts of the registration.
	// Further hosts are rejected until some are approved or deleted. Defaults to 1000.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxPendingHosts int32 `json:"maxPendingHosts,omitempty"`

	// agent is the version of the agent that the registration's hosts update themselves
	// to. If absent, agents are not updated.
	// +optional
	Agent *AgentRelease `json:"agent,omitempty"`

	// endpoint overrides the server URL, which is where hosts reach the agent API.
	// Defaults to the manager's flag --agent-api-url.
	// +optional
	Endpoint RegistrationEndpoint `json:"endpoint,omitempty,omitzero"`

	// successor is the management cluster that the registration's hosts follow to once
	// this one does not know them, as after `clusterctl move`, or does not answer for 20
	// seconds. A host changes only if the successor knows it. A successor with the server
	// URL of this management cluster is ignored, so it may stay here after a move. Whoever
	// runs the successor runs programs as root on these hosts.
	// +optional
	Successor *RegistrationSuccessor `json:"successor,omitempty"`
}

// RegistrationSuccessor is how hosts reach another management cluster.
type RegistrationSuccessor struct {
	// urls are server URLs of the successor: https://host[:port], without a path. Hosts try
	// them in turn. See status.endpoint.url of the successor's registrations.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="isURL(self) && url(self).getHostname() != '' && self.matches('^https://[^/?#@]+/?$')",message="each URL must be https://host[:port] without a path"
	URLs []string `json:"urls,omitempty"`
	// trustBundle has the CA certificates (PEM) of the successor's agent API. Hosts trust
	// them for these URLs only. See status.endpoint.caBundle of the successor's
	// registrations.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	TrustBundle string `json:"trustBundle,omitempty"`
}

// ReadoptionPolicy says what happens to hosts that enrolled before and are not known.
type ReadoptionPolicy string

// Readoption policies.
const (
	ReadoptionPending ReadoptionPolicy = "Pending"
	ReadoptionDenied  ReadoptionPolicy = "Denied"
)

// AgentRelease is the version of the agent that hosts update themselves to. The manager
// serves the binaries. Hosts never change to an older version.
type AgentRelease struct {
	// version of the agent, as `elemental-agent version` prints it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`
	Version string `json:"version,omitempty"`
	// binaries by architecture. Agents of other architectures are not updated.
	// +required
	// +listType=map
	// +listMapKey=architecture
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Binaries []AgentBinary `json:"binaries,omitempty"`
}

// AgentBinary is the agent binary for one architecture.
type AgentBinary struct {
	// architecture as Go names it, for example amd64 or arm64.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	// +kubebuilder:validation:MaxLength=16
	Architecture string `json:"architecture,omitempty"`
	// sha256 is the SHA-256 of the binary, in lower-case hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`
}

// ApprovalPolicy says how hosts that enrol are approved.
// +kubebuilder:validation:Enum=Automatic;Manual
type ApprovalPolicy string

// Approval policies.
const (
	ApprovalAutomatic ApprovalPolicy = "Automatic"
	ApprovalManual    ApprovalPolicy = "Manual"
)

// HostTemplate is the template of an ElementalHost.
type HostTemplate struct {
	// labels of the ElementalHost.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// annotations of the ElementalHost.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be annotation keys"
	Annotations map[string]string `json:"annotations,omitempty"`
	// namePattern is the pattern of the ElementalHost's name. It may contain {{ .HostID
	// }}, {{ .Hostname }}, which is the host's own name up to its first dot, and the
	// fields of status.inventory, for example {{ .Inventory.SMBIOS.SerialNumber }}. The
	// result is converted to a DNS label. If the name exists already, the host ID is
	// appended. A host whose own name is missing, "localhost" or no DNS name is named
	// "host-" and its host ID. Defaults to "host-{{ .HostID }}".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NamePattern string `json:"namePattern,omitempty"`
}

// TokenPolicy limits the tokens that the provider creates.
type TokenPolicy struct {
	// ttlSeconds is how long a token is valid, in seconds: from 60 (one minute) to
	// 604800 (7 days). A change applies to tokens created after it. Defaults to 86400
	// (24 hours).
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	TTLSeconds int32 `json:"ttlSeconds,omitempty"`
	// maxUses is the number of hosts that can enrol with one token. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxUses int32 `json:"maxUses,omitempty"`
}

// RegistrationEndpoint overrides the server URL.
type RegistrationEndpoint struct {
	// url is the server URL: https://host[:port], without a path.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHostname() != '' && self.matches('^https://[^/?#@]+/?$')",message="url must be https://host[:port] without a path"
	URL string `json:"url,omitempty"`
}

// ElementalRegistrationStatus is what hosts need to enrol, with the state of the
// registration.
type ElementalRegistrationStatus struct {
	// endpoint is what hosts use to reach the agent API.
	// +optional
	Endpoint PublishedEndpoint `json:"endpoint,omitempty,omitzero"`
	// tokenSecretRef refers to the Secret of the newest usable token. Its key
	// config.yaml contains a complete agent configuration. Delete the Secret to revoke
	// the token and get another.
	// +optional
	TokenSecretRef *LocalReference `json:"tokenSecretRef,omitempty"`
	// tokenExpiresAt is when that token expires.
	// +optional
	TokenExpiresAt metav1.Time `json:"tokenExpiresAt,omitempty,omitzero"`
	// conditions of the registration: Ready, EndpointReady, TokenValid,
	// AgentBinariesReady, SuccessorReached, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PublishedEndpoint is what hosts use to reach the agent API.
type PublishedEndpoint struct {
	// url is the server URL.
	// +optional
	URL string `json:"url,omitempty"`
	// caBundle contains the CA certificates (PEM) that hosts trust for the agent API.
	// +optional
	CABundle string `json:"caBundle,omitempty"`
}

// ElementalRegistration allows hosts to enrol. Deleting it revokes its tokens and leaves
// its hosts as they are.
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name must be at most 63 characters: it becomes a label of hosts and tokens"
// +kubebuilder:resource:path=elementalregistrations,scope=Namespaced,categories=cluster-api,shortName=ereg
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move-hierarchy="}
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Approval",type="string",JSONPath=".spec.approval"
// +kubebuilder:printcolumn:name="URL",type="string",JSONPath=".status.endpoint.url"
// +kubebuilder:printcolumn:name="Token",type="string",JSONPath=".status.tokenSecretRef.name"
// +kubebuilder:printcolumn:name="Token valid",type="string",JSONPath=".status.conditions[?(@.type=='TokenValid')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElementalRegistration struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is the desired state.
	// +optional
	// +kubebuilder:default={}
	Spec ElementalRegistrationSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ElementalRegistrationStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the object.
func (r *ElementalRegistration) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the object.
func (r *ElementalRegistration) SetConditions(list []metav1.Condition) { r.Status.Conditions = list }

// ElementalRegistrationList is a list of ElementalRegistrations.
// +kubebuilder:object:root=true
type ElementalRegistrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalRegistration `json:"items"`
}
