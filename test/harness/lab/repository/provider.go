package repository

// Provider is a Cluster API provider as clusterctl sees it.
type Provider struct {
	// Name and Kind are clusterctl's, such as kubeadm and BootstrapProvider.
	Name, Kind string
	// Label is the folder clusterctl expects, such as bootstrap-kubeadm.
	Label string
	// Components is the file name of its manifests.
	Components string
	// Tool is the program in test/tools, and Image the reference of its image. They are blank for
	// this provider.
	Tool, Image string

	// config is the folder of its kustomization inside the cluster-api module.
	config string
}

const (
	stagingRegistry = "gcr.io/k8s-staging-cluster-api"
	registry        = "registry.k8s.io/cluster-api"
)

// Upstream returns the providers of a version of Cluster API, such as v1.14.2.
func Upstream(version string) []Provider {
	provider := func(p Provider, image string) Provider {
		p.Image = registry + "/" + image + ":" + version
		return p
	}
	return []Provider{
		provider(Provider{
			Name: "cluster-api", Kind: "CoreProvider", Label: "cluster-api", Components: "core-components.yaml",
			Tool: "capi-core", config: "core/config/default",
		}, "cluster-api-controller"),
		provider(Provider{
			Name: "kubeadm", Kind: "BootstrapProvider", Label: "bootstrap-kubeadm", Components: "bootstrap-components.yaml",
			Tool: "capi-kubeadm-bootstrap", config: "bootstrap/kubeadm/config/default",
		}, "kubeadm-bootstrap-controller"),
		provider(Provider{
			Name: "kubeadm", Kind: "ControlPlaneProvider", Label: "control-plane-kubeadm", Components: "control-plane-components.yaml",
			Tool: "capi-kubeadm-control-plane", config: "controlplane/kubeadm/config/default",
		}, "kubeadm-control-plane-controller"),
	}
}

// Elemental returns this provider.
func Elemental() Provider {
	return Provider{
		Name: "elemental", Kind: "InfrastructureProvider", Label: "infrastructure-elemental",
		Components: "infrastructure-components.yaml",
	}
}
