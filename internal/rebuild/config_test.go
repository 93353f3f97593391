package rebuild_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rebuild"
)

func objects() (*clusterv1.Cluster, *clusterv1.Machine, *controlplanev1.KubeadmControlPlane) {
	meta := metav1.ObjectMeta{Namespace: "sites", Name: "site-1"}
	cluster := &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
		ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: "site-1"},
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443},
		ClusterNetwork: clusterv1.ClusterNetwork{
			ServiceDomain: "cluster.local", Pods: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.1.0.0/16"}}, Services: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.2.0.0/16"}},
		},
	}}
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{ClusterName: "site-1", Version: "v1.36.3"}}
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: meta}
	kcp.Spec.KubeadmConfigSpec = bootstrapv1.KubeadmConfigSpec{
		ClusterConfiguration: bootstrapv1.ClusterConfiguration{
			APIServer: bootstrapv1.APIServer{ExtraArgs: []bootstrapv1.Arg{{Name: "audit-policy-file", Value: new("/etc/kubernetes/audit.yaml")}}},
		},
		InitConfiguration: bootstrapv1.InitConfiguration{NodeRegistration: bootstrapv1.NodeRegistrationOptions{
			Name: "{{ ds.meta_data.local_hostname }}", KubeletExtraArgs: []bootstrapv1.Arg{{Name: "node-labels", Value: new("zone=a")}},
		}},
	}
	return cluster, machine, kcp
}

func config(t *testing.T, cluster *clusterv1.Cluster, machine *clusterv1.Machine, kcp *controlplanev1.KubeadmControlPlane) (string, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := controlplanev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return rebuild.Config(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(kcp).Build(), cluster, machine)
}

var update = flag.Bool("update", false, "write the golden files")

func TestConfig(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	cluster, machine, kcp := objects()
	got, err := config(t, cluster, machine, kcp)
	g.Expect(err).NotTo(HaveOccurred())
	const golden = "testdata/config.yaml"
	if *update {
		g.Expect(os.WriteFile(golden, []byte(got), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(golden)
	g.Expect(err).NotTo(HaveOccurred(), "go test -update writes the golden file")
	g.Expect(got).To(Equal(string(want)))
}

// What a person has set stays, and Ignition has no templates.
func TestConfigOfOtherControlPlanes(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	cluster, machine, kcp := objects()
	kcp.Spec.KubeadmConfigSpec.ClusterConfiguration.ControlPlaneEndpoint = "site-1.example:6443"
	kcp.Spec.KubeadmConfigSpec.Format = bootstrapv1.Ignition
	got, err := config(t, cluster, machine, kcp)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(HavePrefix("#cloud-config\n"))
	g.Expect(got).To(ContainSubstring("controlPlaneEndpoint: site-1.example:6443\n"))
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*clusterv1.Cluster, *clusterv1.Machine, *controlplanev1.KubeadmControlPlane)
		want   string
	}{
		"another kind": {func(c *clusterv1.Cluster, _ *clusterv1.Machine, _ *controlplanev1.KubeadmControlPlane) {
			c.Spec.ControlPlaneRef.Kind = "RKE2ControlPlane"
		}, "the control plane of Cluster site-1 is no KubeadmControlPlane"},
		"no object": {func(c *clusterv1.Cluster, _ *clusterv1.Machine, _ *controlplanev1.KubeadmControlPlane) {
			c.Spec.ControlPlaneRef.Name = "gone"
		}, "getting KubeadmControlPlane gone: "},
		"no version": {func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *controlplanev1.KubeadmControlPlane) {
			m.Spec.Version = ""
		}, `reading version "" of Machine site-1: `},
		"an old version": {func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *controlplanev1.KubeadmControlPlane) {
			m.Spec.Version = "v1.21.0"
		}, "writing kubeadm's ClusterConfiguration from KubeadmControlPlane site-1: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, machine, kcp := objects()
			test.change(cluster, machine, kcp)
			if _, err := config(t, cluster, machine, kcp); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
