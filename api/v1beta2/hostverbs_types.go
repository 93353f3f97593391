package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostCordon keeps new machines off a host.
type HostCordon struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// HostMaintenance is work that somebody does on a host.
type HostMaintenance struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// until when; the provider then ends it. Without, somebody has to.
	// +optional
	Until metav1.Time `json:"until,omitempty,omitzero"`
}

// HostQuarantine keeps machines off a host that failed repeatedly.
type HostQuarantine struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
	// until when; the provider then ends it.
	// +required
	Until metav1.Time `json:"until,omitempty,omitzero"`
	// failures in a row that led to it; the next one leads to a longer one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
}

// HostFence gives up a host.
type HostFence struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// HostReboot asks for a reboot.
type HostReboot struct {
	// id of the request: the host reboots once for each.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
}

// HostOSUpgrade asks for an upgrade of the operating system's image.
type HostOSUpgrade struct {
	// id of the request: the host is upgraded once for each.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// image to upgrade to, a source of the elemental CLI: oci:…, docker:…,
	// dir:… or file:….
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(oci|docker|dir|file):[^\s]+$`
	Image string `json:"image,omitempty"`
}
