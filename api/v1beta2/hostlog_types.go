package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What Secrets with logs of hosts have.
const (
	// HostLogSecretType is their type, and HostLogLabel a label with the value "true".
	HostLogSecretType = "infrastructure.cluster.x-k8s.io/elemental-host-log"
	HostLogLabel      = "infrastructure.cluster.x-k8s.io/elemental-host-log"
	// HostLogKey is the key of their data that has the log.
	HostLogKey = "log"
	// LogRequestAnnotation has the ID of the request, and LogExpiresAnnotation the time when the
	// provider removes the Secret.
	LogRequestAnnotation = "infrastructure.cluster.x-k8s.io/log-request"
	LogExpiresAnnotation = "infrastructure.cluster.x-k8s.io/log-expires"
)

// HostLogRequest requests the log of the last operation of a type.
type HostLogRequest struct {
	// id of the request. The host answers once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	ID string `json:"id,omitempty"`
	// operation is the type of the operation.
	// +required
	Operation OperationType `json:"operation,omitempty"`
	// until is when the provider withdraws the request if the host has not answered.
	// +required
	Until metav1.Time `json:"until,omitempty,omitzero"`
}

// HostLog says where the log is that a host has sent.
type HostLog struct {
	// id of the request that the host has answered.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// operation is the type of the operation.
	// +required
	Operation OperationType `json:"operation,omitempty"`
	// operationID is the ID of the operation. It is absent if the host has no log of the type.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	OperationID string `json:"operationID,omitempty"`
	// state of the operation when the host answered. The log of one that was running has no end.
	// +optional
	State OperationState `json:"state,omitempty"`
	// secretName is the name of the Secret with the log. It is absent if the host has none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`
	// redactions is the number of secrets that the host has left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Redactions int32 `json:"redactions,omitempty"`
	// cutBytes is the number of bytes that the host has left out, because the log is bounded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CutBytes int64 `json:"cutBytes,omitempty"`
	// expiresAt is when the provider removes the Secret and this answer.
	// +required
	ExpiresAt metav1.Time `json:"expiresAt,omitempty,omitzero"`
}

// LogSecretName returns the name of the Secret with the log of a host. A host has one log at a
// time.
func LogSecretName(host *ElementalHost) string {
	const suffix, longest = "-log", 253
	if len(host.Name)+len(suffix) > longest {
		return string(host.UID) + suffix
	}
	return host.Name + suffix
}

// IsLogOf reports whether a Secret is the one with the log of the host, and not somebody else's
// with the same name.
func IsLogOf(secret *corev1.Secret, host *ElementalHost) bool {
	return secret.Type == HostLogSecretType && metav1.IsControlledBy(secret, host)
}
