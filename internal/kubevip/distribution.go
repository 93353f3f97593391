package kubevip

import (
	"k8s.io/apimachinery/pkg/util/version"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// fileName of the static Pod, in the folder that the kubelet reads them from.
const fileName = "kube-vip.yaml"

// Credentials that kubeadm makes on every control-plane host and, from
// Kubernetes 1.29, on the first one only.
const (
	adminConf      = "/etc/kubernetes/admin.conf"
	superAdminConf = "/etc/kubernetes/super-admin.conf"
)

// DistributionOf returns the distribution that a control plane of that kind
// installs; blank when that is not known.
func DistributionOf(controlPlaneKind string) infrav1.Distribution {
	switch controlPlaneKind {
	case "KubeadmControlPlane":
		return infrav1.DistributionKubeadm
	case "KThreesControlPlane":
		return infrav1.DistributionK3s
	case "RKE2ControlPlane":
		return infrav1.DistributionRKE2
	default:
		return ""
	}
}

// paths returns the folder of static Pods and the credential for the API server
// of the host itself; blank ones for a distribution that is not known.
func paths(distribution infrav1.Distribution, host *infrav1.ElementalHost, facts Facts) (folder, credential string) {
	switch distribution {
	case infrav1.DistributionKubeadm:
		if needsSuperAdmin(host, facts) {
			return "/etc/kubernetes/manifests", superAdminConf
		}
		return "/etc/kubernetes/manifests", adminConf
	case infrav1.DistributionK3s:
		return "/var/lib/rancher/k3s/agent/pod-manifests", "/etc/rancher/k3s/k3s.yaml"
	case infrav1.DistributionRKE2:
		return "/var/lib/rancher/rke2/agent/pod-manifests", "/etc/rancher/rke2/rke2.yaml"
	default:
		return "", ""
	}
}

// needsSuperAdmin tells whether admin.conf may not do anything yet. kubeadm init
// gives it its rights through the API server, at the endpoint, which kube-vip has
// to bring up first (kubeadm from 1.29; kube-vip#684). The exchange restarts
// kube-vip, so it waits until another host can take the address meanwhile.
func needsSuperAdmin(host *infrav1.ElementalHost, facts Facts) bool {
	if host.Spec.Claim == nil || host.Spec.Claim.Role != infrav1.RoleInitialControlPlane || facts.OtherControlPlane {
		return false
	}
	is, err := version.ParseGeneric(facts.KubernetesVersion)
	return err != nil || is.AtLeast(version.MajorMinor(1, 29))
}
