package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostCertificate is a certificate of the control plane on a host.
type HostCertificate struct {
	// name of its file, relative to /etc/kubernetes, such as pki/apiserver.crt. A kubeconfig such
	// as admin.conf has a certificate too.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// notAfter is when the certificate ends.
	// +required
	NotAfter metav1.Time `json:"notAfter,omitempty,omitzero"`
}

// HostCertificateRenewal requests a renewal of the certificates that kubeadm has made on a
// control-plane host. The programs of the control plane restart, one after the other.
type HostCertificateRenewal struct {
	// id of the request. The host renews its certificates once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// requestedAt is when the provider made the request. It is absent in one that an
	// administrator made.
	// +optional
	RequestedAt metav1.Time `json:"requestedAt,omitempty,omitzero"`
}
