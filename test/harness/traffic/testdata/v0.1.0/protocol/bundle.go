package protocol

// Bundle is a bundle of Kubernetes for the host's architecture (package bundle).
type Bundle struct {
	// Version of Kubernetes, such as v1.36.3.
	Version string `json:"version"`
	// SHA256 of the bundle, in lower-case hex.
	SHA256 string `json:"sha256"`
	// SizeBytes is the size of the bundle.
	SizeBytes int64 `json:"sizeBytes"`
	// Sources are tried in turn: SourceManager, an http or https URL, or file:/PATH.
	Sources []string `json:"sources"`
	// Replace has a Bootstrap install the bundle also on a host that has the programs, and set
	// aside what is in the way. Otherwise the host keeps what it has.
	Replace bool `json:"replace,omitempty"`
}

// SourceManager is the source of a Bundle that stands for PathBundle.
const SourceManager = "manager"

// NodeUpgrade is an upgrade of a Node in place: of Kubernetes, to Bundle, or of the operating
// system below it, to OSImage. The other one is blank.
type NodeUpgrade struct {
	Role   UpgradeRole `json:"role"`
	Bundle Bundle      `json:"bundle,omitzero"`
	// OSImage is a source of the elemental CLI.
	OSImage string `json:"osImage,omitempty"`
	// DrainTimeoutSeconds is how long the drain of the Node may take. 0: no drain.
	DrainTimeoutSeconds int32 `json:"drainTimeoutSeconds,omitempty"`
	// IgnorePreflightErrors are checks of kubeadm whose errors are warnings.
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`
	// PatchesDirectory is the folder on the host with kubeadm's patches; blank for none.
	PatchesDirectory string `json:"patchesDirectory,omitempty"`
	// Redirect is where connections to the control plane endpoint may go while the API server
	// of this host is replaced. Nil: the endpoint is not at this host, or there is no other.
	Redirect *Redirect `json:"redirect,omitempty"`
}

// Redirect names the API servers that may serve a control plane endpoint instead of the host
// that has its address.
type Redirect struct {
	// Endpoint is the control plane endpoint, IP:port, at an address of the host.
	Endpoint string `json:"endpoint"`
	// Servers are API servers of the cluster on other hosts, IP:port, at most MaxBackends. Those
	// that are likely to be ready come first.
	Servers []string `json:"servers"`
}

// UpgradeRole is the role of a host in an upgrade of its cluster.
type UpgradeRole string

// Roles in an upgrade.
const (
	// UpgradeFirstControlPlane: the first control-plane host of its cluster that gets the
	// version. It runs `kubeadm upgrade apply`; all others run `kubeadm upgrade node`.
	UpgradeFirstControlPlane UpgradeRole = "FirstControlPlane"
	UpgradeControlPlane      UpgradeRole = "ControlPlane"
	UpgradeWorker            UpgradeRole = "Worker"
)
