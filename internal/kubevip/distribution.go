package kubevip

import (
	"k8s.io/apimachinery/pkg/util/version"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// fileName is the name of the manifest in the kubelet's directory of static Pods.
const fileName = "kube-vip.yaml"

// Credentials of kubeadm. It writes adminConf on every control-plane host and, from
// Kubernetes 1.29, superAdminConf on the first one.
const (
	adminConf      = "/etc/kubernetes/admin.conf"
	superAdminConf = "/etc/kubernetes/super-admin.conf"
)

// DistributionOf returns the Kubernetes distribution that a control plane of that kind
// installs; blank for an unknown kind.
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

// paths returns the directory of static Pods and the credential for the host's own API
// server; both are blank for an unknown distribution.
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

// needsSuperAdmin reports whether admin.conf may lack its permissions. kubeadm init grants
// them through the endpoint, which kube-vip has to bring up first (kubeadm from 1.29;
// kube-vip#684). Changing the credential restarts kube-vip, so the host keeps
// super-admin.conf until another host can take over the address.
func needsSuperAdmin(host *infrav1.ElementalHost, facts Facts) bool {
	if host.Spec.Claim == nil || host.Spec.Claim.Role != infrav1.RoleInitialControlPlane || facts.OtherControlPlane {
		return false
	}
	current, err := version.ParseGeneric(facts.KubernetesVersion)
	return err != nil || current.AtLeast(version.MajorMinor(1, 29))
}
