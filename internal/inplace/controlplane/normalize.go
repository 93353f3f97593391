package controlplane

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
)

// isForJoin reports whether the configuration makes a host join a control plane, as
// KubeadmControlPlane finds out.
func isForJoin(c *bootstrapv1.KubeadmConfig) bool {
	join := c.Spec.JoinConfiguration
	return join.ControlPlane != nil || len(join.NodeRegistration.KubeletExtraArgs) > 0
}

// normalize returns copies of a KubeadmConfig's current and desired spec without the
// differences that KubeadmControlPlane ignores: they change no Machine. convert turns the
// configuration of the first Machine into that of one that joins.
func normalize(current, desired bootstrapv1.KubeadmConfigSpec, convert bool) (from, to bootstrapv1.KubeadmConfigSpec) {
	from, to = *current.DeepCopy(), *desired.DeepCopy()
	if convert {
		first := from.InitConfiguration
		from.JoinConfiguration = bootstrapv1.JoinConfiguration{
			Timeouts: first.Timeouts, Patches: first.Patches, SkipPhases: first.SkipPhases, NodeRegistration: first.NodeRegistration,
			ControlPlane: &bootstrapv1.JoinControlPlane{LocalAPIEndpoint: first.LocalAPIEndpoint},
			CACertPath:   to.JoinConfiguration.CACertPath,
		}
		from.InitConfiguration = bootstrapv1.InitConfiguration{}
	}
	// The bootstrap provider fills in the endpoint and the discovery, and
	// KubeadmControlPlane changes DNS in the running cluster.
	from.ClusterConfiguration.ControlPlaneEndpoint = to.ClusterConfiguration.ControlPlaneEndpoint
	from.ClusterConfiguration.DNS = to.ClusterConfiguration.DNS
	for _, spec := range []*bootstrapv1.KubeadmConfigSpec{&from, &to} {
		spec.JoinConfiguration.Discovery = bootstrapv1.Discovery{}
		spec.InitConfiguration.Timeouts.ControlPlaneComponentHealthCheckSeconds = nil
		spec.JoinConfiguration.Timeouts.ControlPlaneComponentHealthCheckSeconds = nil
		// Former versions of Cluster API stored these defaults.
		spec.Format = cmp.Or(spec.Format, bootstrapv1.CloudConfig)
		for _, node := range []*bootstrapv1.NodeRegistrationOptions{&spec.InitConfiguration.NodeRegistration, &spec.JoinConfiguration.NodeRegistration} {
			node.ImagePullPolicy = cmp.Or(node.ImagePullPolicy, corev1.PullIfNotPresent)
		}
	}
	return from, to
}
