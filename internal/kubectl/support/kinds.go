package support

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// kind is a kind of objects that the archive has.
type kind struct {
	schema.GroupVersionKind

	// ofCluster: objects have the label of their Cluster.
	ofCluster bool
}

// kinds are all kinds that the archive has. Secrets, ConfigMaps and templates of bootstrap data
// are not among them.
func kinds() []kind {
	all := []kind{
		{clusterv1.GroupVersion.WithKind("Cluster"), false},
		{schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmControlPlane"}, true},
		{schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"}, true},
		{schema.GroupVersionKind{Version: "v1", Kind: "Event"}, false},
	}
	for _, name := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"} {
		all = append(all, kind{clusterv1.GroupVersion.WithKind(name), true})
	}
	for _, name := range []string{"ElementalCluster", "ElementalMachine"} {
		all = append(all, kind{infrav1.GroupVersion.WithKind(name), true})
	}
	for _, name := range []string{
		"ElementalHost", "ElementalMachineTemplate", "ElementalRegistration", "ElementalRemediation",
		"ElementalKubernetesRelease", "ElementalEtcdRestore",
	} {
		all = append(all, kind{infrav1.GroupVersion.WithKind(name), false})
	}
	return all
}

// file is the name of the file with the objects.
func (k kind) file() string { return "objects/" + strings.ToLower(k.Kind) + ".yaml" }
