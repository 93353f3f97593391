package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElementalRegistrationSpec says how hosts may enrol and what they become.
type ElementalRegistrationSpec struct {
	// hostTemplate is applied to hosts that enrol. A host has no say in it.
	// +optional
	HostTemplate HostTemplate `json:"hostTemplate,omitempty,omitzero"`

	// token limits the tokens that the provider makes.
	// +optional
	// +kubebuilder:default={}
	Token TokenPolicy `json:"token,omitempty,omitzero"`

	// approval says whether hosts are let in at once or by an administrator.
	// +optional
	// +kubebuilder:default=Automatic
	Approval ApprovalPolicy `json:"approval,omitempty"`

	// readoption says what becomes of hosts that were enrolled before, are not
	// known here, and have no token: Pending shows them as pending hosts of this
	// namespace, to be approved; Denied refuses them. Any registration of the
	// namespace that says Pending will do.
	// +optional
	// +kubebuilder:default=Pending
	// +kubebuilder:validation:Enum=Pending;Denied
	Readoption ReadoptionPolicy `json:"readoption,omitempty"`

	// maxPendingHosts bounds the pending hosts of the registration. Further ones
	// are refused until some are approved or deleted.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxPendingHosts int32 `json:"maxPendingHosts,omitempty"`

	// agent pins the version of the agent on the registration's hosts.
	// +optional
	Agent *AgentRelease `json:"agent,omitempty"`

	// endpoint overrides where hosts find the agent API.
	// +optional
	Endpoint RegistrationEndpoint `json:"endpoint,omitempty,omitzero"`
}

// ReadoptionPolicy says what becomes of hosts that were enrolled before.
type ReadoptionPolicy string

// Readoption policies.
const (
	ReadoptionPending ReadoptionPolicy = "Pending"
	ReadoptionDenied  ReadoptionPolicy = "Denied"
)

// AgentRelease is a version of the agent that hosts update themselves to. The
// manager serves the binaries that it was given; hosts never go back to an
// older version.
type AgentRelease struct {
	// version of the agent, as `elemental-agent version` prints it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`
	Version string `json:"version,omitempty"`
	// binaries by architecture. Hosts of another architecture stay as they are.
	// +required
	// +listType=map
	// +listMapKey=architecture
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Binaries []AgentBinary `json:"binaries,omitempty"`
}

// AgentBinary is the agent for one architecture.
type AgentBinary struct {
	// architecture as Go names it: amd64, arm64.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	// +kubebuilder:validation:MaxLength=16
	Architecture string `json:"architecture,omitempty"`
	// sha256 of the binary, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`
}

// ApprovalPolicy says how hosts are let in.
// +kubebuilder:validation:Enum=Automatic;Manual
type ApprovalPolicy string

// Approval policies.
const (
	ApprovalAutomatic ApprovalPolicy = "Automatic"
	ApprovalManual    ApprovalPolicy = "Manual"
)

// HostTemplate is applied to hosts that enrol.
type HostTemplate struct {
	// labels of the ElementalHost.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// annotations of the ElementalHost.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be annotation keys"
	Annotations map[string]string `json:"annotations,omitempty"`
	// namePattern makes the ElementalHost's name. {{ .HostID }} and
	// {{ .Inventory… }} are available, with the fields of status.inventory as in
	// {{ .Inventory.SMBIOS.SerialNumber }}; the result is made a DNS label.
	// A name that is taken gets the host ID appended. "host-{{ .HostID }}" when
	// not given.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NamePattern string `json:"namePattern,omitempty"`
}

// TokenPolicy limits tokens.
type TokenPolicy struct {
	// ttlSeconds is how long a token is good for: a minute to 7 days, 24 hours
	// when not given. A change concerns tokens made from then on.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	TTLSeconds int32 `json:"ttlSeconds,omitempty"`
	// maxUses is how many hosts may enrol with one token.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxUses int32 `json:"maxUses,omitempty"`
}

// RegistrationEndpoint is where hosts find the agent API.
type RegistrationEndpoint struct {
	// url of the agent API.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHostname() != '' && self.matches('^https://[^/?#@]+/?$')",message="url must be https://host[:port] without a path"
	URL string `json:"url,omitempty"`
}

// ElementalRegistrationStatus is what hosts need to enrol.
type ElementalRegistrationStatus struct {
	// endpoint that hosts are told to use.
	// +optional
	Endpoint PublishedEndpoint `json:"endpoint,omitempty,omitzero"`
	// tokenSecretRef names the Secret of the newest token. Its key config.yaml is
	// a complete agent configuration. Delete the Secret to revoke the token and
	// get another.
	// +optional
	TokenSecretRef *LocalReference `json:"tokenSecretRef,omitempty"`
	// tokenExpiresAt is when that token expires.
	// +optional
	TokenExpiresAt metav1.Time `json:"tokenExpiresAt,omitempty,omitzero"`
	// conditions of the registration: Ready, EndpointReady, TokenValid,
	// AgentBinariesReady, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PublishedEndpoint is what hosts are told of the agent API.
type PublishedEndpoint struct {
	// url of the agent API.
	// +optional
	URL string `json:"url,omitempty"`
	// caBundle is PEM: the roots the agent API's certificate chains to.
	// +optional
	CABundle string `json:"caBundle,omitempty"`
}

// ElementalRegistration lets hosts enrol. Deleting it revokes its tokens and
// leaves its hosts as they are.
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name must be at most 63 characters: it becomes a label of hosts and tokens"
// +kubebuilder:resource:path=elementalregistrations,scope=Namespaced,categories=cluster-api
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
func (r *ElementalRegistration) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// ElementalRegistrationList is a list of ElementalRegistrations.
// +kubebuilder:object:root=true
type ElementalRegistrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElementalRegistration `json:"items"`
}
