package rebuild

import (
	"context"
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kubeadmtypes "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get

// Config returns the cloud-config that writes protocol.KubeadmConfigPath on the host of the
// Machine. live reads from the API server: kinds of other providers are not in the cache. The error
// says what a person can do.
func Config(ctx context.Context, live client.Reader, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (string, error) {
	ref := cluster.Spec.ControlPlaneRef
	if ref.APIGroup != controlplanev1.GroupVersion.Group || ref.Kind != "KubeadmControlPlane" {
		return "", fmt.Errorf("the control plane of Cluster %s is no KubeadmControlPlane: only that one can be set up again", cluster.Name)
	}
	kcp := &controlplanev1.KubeadmControlPlane{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, kcp); err != nil {
		return "", fmt.Errorf("getting KubeadmControlPlane %s: %w", ref.Name, err)
	}
	return render(cluster, machine, kcp)
}

// render returns the configuration of kubeadm for the Machine's version, in a cloud-config.
func render(cluster *clusterv1.Cluster, machine *clusterv1.Machine, kcp *controlplanev1.KubeadmControlPlane) (string, error) {
	version, err := semver.ParseTolerant(machine.Spec.Version)
	if err != nil {
		return "", fmt.Errorf("reading version %q of Machine %s: %w", machine.Spec.Version, machine.Name, err)
	}
	spec := kcp.Spec.KubeadmConfigSpec.DeepCopy()
	if spec.ClusterConfiguration.ControlPlaneEndpoint == "" && cluster.Spec.ControlPlaneEndpoint.IsValid() {
		spec.ClusterConfiguration.ControlPlaneEndpoint = cluster.Spec.ControlPlaneEndpoint.String()
	}
	shared, err := kubeadmtypes.MarshalClusterConfigurationForVersion(&spec.ClusterConfiguration, version, additional(cluster, machine, spec))
	if err != nil {
		return "", fmt.Errorf("writing kubeadm's ClusterConfiguration from KubeadmControlPlane %s: %w", kcp.Name, err)
	}
	own, err := kubeadmtypes.MarshalInitConfigurationForVersion(&spec.InitConfiguration, version)
	if err != nil {
		return "", fmt.Errorf("writing kubeadm's InitConfiguration from KubeadmControlPlane %s: %w", kcp.Name, err)
	}
	header := "## template: jinja\n#cloud-config\n"
	if spec.Format == bootstrapv1.Ignition {
		header = "#cloud-config\n" // the provider renders no templates for Ignition
	}
	return header + "write_files:\n- path: " + protocol.KubeadmConfigPath + "\n  owner: root:root\n  permissions: '0600'\n  content: |\n" +
		indent("---\n"+shared+"---\n"+own), nil
}

// additional returns what kubeadm's ClusterConfiguration has from other objects, as Cluster API's
// bootstrap provider takes it from them.
func additional(cluster *clusterv1.Cluster, machine *clusterv1.Machine, spec *bootstrapv1.KubeadmConfigSpec) *upstream.AdditionalData {
	data := &upstream.AdditionalData{
		ClusterName: &cluster.Name, KubernetesVersion: &machine.Spec.Version,
		ControlPlaneComponentHealthCheckSeconds: spec.InitConfiguration.Timeouts.ControlPlaneComponentHealthCheckSeconds,
	}
	network := cluster.Spec.ClusterNetwork
	if network.ServiceDomain != "" {
		data.DNSDomain = &network.ServiceDomain
	}
	if len(network.Services.CIDRBlocks) > 0 {
		data.ServiceSubnet = new(network.Services.String())
	}
	if len(network.Pods.CIDRBlocks) > 0 {
		data.PodSubnet = new(network.Pods.String())
	}
	return data
}

func indent(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return "    " + strings.Join(lines, "\n    ") + "\n"
}
