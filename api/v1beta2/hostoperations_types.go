package v1beta2

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostCordon excludes a host from new claims.
type HostCordon struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// HostMaintenance leaves a host alone while somebody works on it.
type HostMaintenance struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// until is when the maintenance ends. If absent, maintenance lasts until it is
	// removed.
	// +optional
	Until metav1.Time `json:"until,omitempty,omitzero"`
}

// InMaintenance reports whether the host is in maintenance. One that has ended at its time does
// not count, although it is still in spec.
func (h *ElementalHost) InMaintenance() bool {
	m := h.Spec.Maintenance
	return m != nil && (m.Until.IsZero() || !m.Until.Equal(&h.Spec.MaintenanceEndedAt))
}

// HostQuarantine excludes a host from new claims after repeated failures.
type HostQuarantine struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
	// until is when the provider ends the quarantine.
	// +required
	Until metav1.Time `json:"until,omitempty,omitzero"`
	// failures is the number of consecutive failed bootstraps that led to the
	// quarantine. Another failure leads to a longer quarantine.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
}

// HostFence releases a host by force.
type HostFence struct {
	// reason for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// HostReboot requests a reboot.
type HostReboot struct {
	// id of the request. The host reboots once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// restoreName is the ElementalEtcdRestore that the reboot belongs to. Such a reboot also begins
	// while the Cluster is paused for the restore.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RestoreName string `json:"restoreName,omitempty"`
}

// HostOSUpgrade requests an upgrade of the operating system image.
type HostOSUpgrade struct {
	// id of the request. The host is upgraded once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// image to upgrade to, as a source of the elemental CLI: oci:…, docker:…, dir:… or
	// file:….
	// +required
	Image OSImage `json:"image,omitempty"`
}

// OSImage is an image of Elemental OS, as a source of the elemental CLI.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^(oci|docker|dir|file):[^\s]+$`
type OSImage string

// Operation returns the host's last operation of the type if it has the ID, and nil
// otherwise.
func (h *ElementalHost) Operation(t OperationType, id string) *HostOperation {
	for i := range h.Status.Operations {
		if op := &h.Status.Operations[i]; op.Type == t && op.ID == id {
			return op
		}
	}
	return nil
}

// Supports reports whether the host's agent has reported the capability.
func (h *ElementalHost) Supports(t OperationType) bool {
	return h.Status.Agent != nil && slices.Contains(h.Status.Agent.Capabilities, string(t))
}
