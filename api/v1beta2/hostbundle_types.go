package v1beta2

// HostBundle is a bundle of Kubernetes for one host.
type HostBundle struct {
	// version of Kubernetes in the bundle.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
	// sha256 of the bundle, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
	// sizeBytes is the size of the bundle, in bytes.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967296
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// sources of the bundle, tried in turn; see ElementalKubernetesRelease.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=1024
	Sources []string `json:"sources,omitempty"`
	// programs is what happens to programs that the host has; see ElementalMachine.
	// +optional
	Programs ProgramPolicy `json:"programs,omitempty"`
}

// HostNodeUpgrade requests an upgrade of a Node in place: of Kubernetes, or of the operating
// system below it.
// +kubebuilder:validation:XValidation:rule="has(self.bundle) != has(self.osImage)",message="give either bundle or osImage: one request upgrades Kubernetes or boots another image"
type HostNodeUpgrade struct {
	// id of the request. The agent runs the upgrade at most once for each ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// role of the host in the upgrade.
	// +required
	Role NodeUpgradeRole `json:"role,omitempty"`
	// bundle of the version of Kubernetes to upgrade to.
	// +optional
	Bundle HostBundle `json:"bundle,omitempty,omitzero"`
	// osImage is the image of Elemental OS to boot.
	// +optional
	OSImage OSImage `json:"osImage,omitempty"`
	// drainTimeoutSeconds is how long the drain of the Node may take, in seconds. If it
	// is absent, the Node is not drained.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	DrainTimeoutSeconds *int32 `json:"drainTimeoutSeconds,omitempty"`
	// ignorePreflightErrors are checks of kubeadm whose errors are warnings.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=128
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`
	// patchesDirectory is the folder on the host with kubeadm's patches. If it is absent,
	// kubeadm applies none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9_@+=:-][A-Za-z0-9_@+=:.-]*)+$`
	PatchesDirectory string `json:"patchesDirectory,omitempty"`
}

// NodeUpgradeRole is the role of a host in an upgrade of its cluster.
// +kubebuilder:validation:Enum=FirstControlPlane;ControlPlane;Worker
type NodeUpgradeRole string

// Roles in an upgrade.
const (
	// UpgradeFirstControlPlane: the first control-plane host of the cluster that gets the
	// version. It also upgrades the cluster's own configuration.
	UpgradeFirstControlPlane NodeUpgradeRole = "FirstControlPlane"
	// UpgradeControlPlane: any other control-plane host.
	UpgradeControlPlane NodeUpgradeRole = "ControlPlane"
	// UpgradeWorker: a host without control plane.
	UpgradeWorker NodeUpgradeRole = "Worker"
)

// BundleState is the state of a bundle on a host.
// +kubebuilder:validation:Enum=Staging;Staged;Failed
type BundleState string

// Bundle states.
const (
	// BundleStaging: the host fetches, verifies or unpacks the bundle.
	BundleStaging BundleState = "Staging"
	// BundleStaged: the bundle is verified and unpacked on the host's disk.
	BundleStaged BundleState = "Staged"
	// BundleFailed: the last attempt failed. The agent tries again.
	BundleFailed BundleState = "Failed"
)

// HostBundleStatus is the state of the bundle that spec.bundle names.
type HostBundleStatus struct {
	// sha256 of the bundle, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
	// version of Kubernetes in the bundle.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
	// state of the bundle on the host.
	// +required
	State BundleState `json:"state,omitempty"`
	// message is the progress, or explains a failure.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// MissingPrograms returns which of kubelet, kubeadm and container runtime the host lacks. It
// returns none for a host whose agent has not reported its programs.
func (h *ElementalHost) MissingPrograms() []string {
	if h.Status.Inventory == nil || h.Status.Inventory.Kubernetes == nil {
		return nil
	}
	var missing []string
	k := h.Status.Inventory.Kubernetes
	if k.Kubelet.Path == "" {
		missing = append(missing, "kubelet")
	}
	if k.Kubeadm.Path == "" {
		missing = append(missing, "kubeadm")
	}
	if k.ContainerRuntime.Path == "" {
		missing = append(missing, "container runtime")
	}
	return missing
}

// ReplacesPrograms reports whether the bootstrap has yet to replace programs of the host by
// those of spec.bundle. It is false for a host whose agent has not reported its programs.
func (h *ElementalHost) ReplacesPrograms() bool {
	return h.Spec.Bundle != nil && h.Spec.Bundle.Programs == ProgramsReplace && !h.IsBootstrapped() &&
		h.Status.Inventory != nil && h.Status.Inventory.Kubernetes != nil && h.Status.Inventory.Kubernetes.Kubelet.Origin != OriginBundle
}

// StagedBundle returns what the host reported about the bundle in spec.bundle, or nil.
func (h *ElementalHost) StagedBundle() *HostBundleStatus {
	if h.Spec.Bundle == nil || h.Status.Bundle == nil || h.Status.Bundle.SHA256 != h.Spec.Bundle.SHA256 {
		return nil
	}
	return h.Status.Bundle
}
