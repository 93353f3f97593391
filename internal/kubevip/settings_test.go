package kubevip_test

import (
	"testing"

	upstream "github.com/kube-vip/kube-vip/pkg/kubevip"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
)

// kube-vip's own parser must read the settings as intended.
func TestKubeVIPParsesItsSettings(t *testing.T) {
	for _, mode := range []infrav1.VIPMode{infrav1.VIPModeARP, infrav1.VIPModeBGP} {
		t.Run(string(mode), func(t *testing.T) {
			g := NewWithT(t)
			file, err := kubevip.File(cluster(address6, mode, infrav1.DistributionK3s), host(infrav1.RoleControlPlane), kubevip.Facts{})
			g.Expect(err).NotTo(HaveOccurred())
			pod := &corev1.Pod{}
			g.Expect(yaml.UnmarshalStrict([]byte(file.Content), pod)).To(Succeed())
			for _, v := range pod.Spec.Containers[0].Env {
				t.Setenv(v.Name, v.Value)
			}
			read := &upstream.Config{}
			g.Expect(upstream.ParseEnvironment(read)).To(Succeed())
			g.Expect(read.Address).To(Equal(address6))
			g.Expect(read.VIPSubnet).To(Equal("128"))
			g.Expect(read.Port).To(BeEquivalentTo(6443))
			g.Expect(read.EnableControlPlane).To(BeTrue())
			g.Expect(read.EnableServices).To(BeFalse())
			g.Expect(read.PrometheusHTTPServer).To(Equal("127.0.0.1:2112"))
			g.Expect(read.EnableLeaderElection).To(BeTrue(), "for BGP as well: a host that joins must not have the address")
			g.Expect(read.LeaseDuration + 2*read.RetryPeriod).To(BeNumerically("<", 20))
			g.Expect(read.RenewDeadline).To(BeNumerically("<", read.LeaseDuration))
			g.Expect(read.EnableARP).To(Equal(mode == infrav1.VIPModeARP))
			g.Expect(read.EnableBGP).To(Equal(mode == infrav1.VIPModeBGP))
			if mode == infrav1.VIPModeARP {
				g.Expect(read.Interface).To(Equal("eth1"))
				return
			}
			g.Expect(read.Interface).To(Equal("lo"))
			g.Expect(read.BGPConfig.RouterID).To(Equal("198.51.100.11"))
			g.Expect(read.BGPConfig.AS).To(BeEquivalentTo(4200000001))
			g.Expect(read.BGPConfig.HoldTime).To(BeNumerically("<", 20))
			g.Expect(read.BGPConfig.KeepaliveInterval).To(BeEquivalentTo(read.BGPConfig.HoldTime / 3))
			g.Expect(read.BGPConfig.Peers).To(HaveLen(2))
			one, two := read.BGPConfig.Peers[0], read.BGPConfig.Peers[1]
			g.Expect(one.Address).To(Equal("198.51.100.1"))
			g.Expect(one.AS).To(BeEquivalentTo(65000))
			g.Expect(one.MultiHop).To(BeFalse())
			g.Expect(one.Password).To(BeEmpty())
			g.Expect(two.Address).To(Equal("2001:db8:1::1"))
			g.Expect(two.AS).To(BeEquivalentTo(65001))
			g.Expect(two.MultiHop).To(BeTrue())
		})
	}
}

// The test covers the fields that the generator can't set.
func TestPodFields(t *testing.T) {
	g := NewWithT(t)
	file, err := kubevip.File(cluster(address4, "", infrav1.DistributionRKE2), host(infrav1.RoleControlPlane), kubevip.Facts{})
	g.Expect(err).NotTo(HaveOccurred())
	pod := &corev1.Pod{}
	g.Expect(yaml.UnmarshalStrict([]byte(file.Content), pod)).To(Succeed())
	g.Expect(pod.Name).To(Equal(kubevip.PodName))
	g.Expect(pod.Spec.HostNetwork).To(BeTrue())
	g.Expect(pod.Spec.PriorityClassName).To(Equal("system-node-critical"))
	g.Expect(pod.Spec.Containers[0].Image).To(Equal(kubevip.DefaultImage))
	g.Expect(pod.Spec.Containers[0].ImagePullPolicy).To(Equal(corev1.PullIfNotPresent))
	credential := pod.Spec.Volumes[0].HostPath
	g.Expect(credential.Path).To(Equal("/etc/rancher/rke2/rke2.yaml"))
	g.Expect(credential.Type).To(HaveValue(Equal(corev1.HostPathFile)), "a folder in its place would break kubeadm")
	g.Expect(pod.Spec.Containers[0].VolumeMounts[0].MountPath).To(Equal("/etc/kubernetes/admin.conf"), "where kube-vip looks for one")
	g.Expect(pod.Spec.Containers[0].VolumeMounts[0].ReadOnly).To(BeTrue())
	g.Expect(pod.Spec.HostAliases).To(ConsistOf(corev1.HostAlias{IP: "127.0.0.1", Hostnames: []string{"kubernetes"}}),
		"the API server is that of the host")
}
