package kubevip_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	address4 = "192.0.2.100"
	address6 = "2001:db8::100"
)

// host returns a host with two interfaces: eth1 is in the address's subnet, eth0 has the
// default route.
func host(role infrav1.ClaimRole) *infrav1.ElementalHost {
	return &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "a"},
		Spec:       infrav1.ElementalHostSpec{Claim: &infrav1.HostClaim{Role: role}},
		Status: infrav1.ElementalHostStatus{
			Addresses: []clusterv1.MachineAddress{
				{Type: clusterv1.MachineExternalIP, Address: "203.0.113.1"},
				{Type: clusterv1.MachineInternalIP, Address: "2001:db8:1::11"},
				{Type: clusterv1.MachineInternalIP, Address: "198.51.100.11"},
				{Type: clusterv1.MachineInternalIP, Address: "192.0.2.11"},
			},
			Inventory: &infrav1.HostInventory{NICs: []infrav1.HostNIC{
				{Name: "eth0", DefaultRoute: true, Addresses: []string{"198.51.100.11/24", "2001:db8:1::11/64"}},
				{Name: "eth1", Addresses: []string{"192.0.2.11/24", "2001:db8::11/64"}},
			}},
		},
	}
}

func cluster(address string, mode infrav1.VIPMode, distribution infrav1.Distribution) *infrav1.ElementalCluster {
	c := &infrav1.ElementalCluster{}
	c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: address, Port: 6443}
	c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeVIP, VIP: &infrav1.EndpointVIP{Address: address, Mode: mode, Distribution: distribution},
	}
	if mode == infrav1.VIPModeBGP {
		c.Spec.ControlPlaneEndpointPolicy.VIP.BGP = &infrav1.VIPBGP{LocalASN: 4200000001, Peers: []infrav1.BGPPeer{
			{Address: "198.51.100.1", ASN: 65000}, {Address: "2001:db8:1::1", ASN: 65001, MultiHop: infrav1.MultiHopEnabled},
		}}
	}
	return c
}

func vipOf(c *infrav1.ElementalCluster) *infrav1.EndpointVIP {
	return c.Spec.ControlPlaneEndpointPolicy.VIP
}

// The test covers every mode, distribution, version, role and address family. Inputs that
// make no difference share a golden file.
func TestGolden(t *testing.T) {
	paths := map[infrav1.Distribution]string{
		infrav1.DistributionKubeadm: "/etc/kubernetes/manifests/kube-vip.yaml",
		infrav1.DistributionK3s:     "/var/lib/rancher/k3s/agent/pod-manifests/kube-vip.yaml",
		infrav1.DistributionRKE2:    "/var/lib/rancher/rke2/agent/pod-manifests/kube-vip.yaml",
	}
	for _, mode := range []infrav1.VIPMode{"", infrav1.VIPModeARP, infrav1.VIPModeBGP} {
		for distribution, path := range paths {
			for _, version := range []string{"v1.28.15", "v1.29.0", "v1.36.3", ""} {
				for _, when := range []string{"initial", "joining", "switched"} {
					for family, address := range map[string]string{"ipv4": address4, "ipv6": address6} {
						golden := []string{strings.ToLower(string(mode)), strings.ToLower(string(distribution)), family}
						if mode == "" {
							golden[0] = "arp"
						}
						if distribution == infrav1.DistributionKubeadm && version != "v1.28.15" && when == "initial" {
							golden = append(golden, "super-admin")
						}
						name := fmt.Sprintf("%s %s %s %s %s", mode, distribution, version, when, family)
						t.Run(name, func(t *testing.T) {
							g := NewWithT(t)
							h, facts := host(infrav1.RoleInitialControlPlane), kubevip.Facts{KubernetesVersion: version}
							switch when {
							case "joining":
								h.Spec.Claim.Role = infrav1.RoleControlPlane
							case "switched":
								facts.OtherControlPlane = true
							}
							file, err := kubevip.File(cluster(address, mode, distribution), h, facts)
							g.Expect(err).NotTo(HaveOccurred())
							g.Expect(file.Path).To(Equal(path))
							g.Expect(file.Mode).To(BeEquivalentTo(0o600))
							compare(t, strings.Join(golden, "-")+".yaml", file.Content)
						})
					}
				}
			}
		}
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Expect(got).To(Equal(string(want)))
}

func TestErrorNamesTheMissingInput(t *testing.T) {
	for want, change := range map[string]func(*infrav1.ElementalCluster, *infrav1.ElementalHost){
		"the virtual IP address is not known yet": func(c *infrav1.ElementalCluster, _ *infrav1.ElementalHost) { c.Spec.ControlPlaneEndpoint.Host = "" },
		"vip.distribution is not known":           func(c *infrav1.ElementalCluster, _ *infrav1.ElementalHost) { vipOf(c).Distribution = "" },
		"the host has no interface bond0":         func(c *infrav1.ElementalCluster, _ *infrav1.ElementalHost) { vipOf(c).Interface = "bond0" },
		"none with a default route":               func(_ *infrav1.ElementalCluster, h *infrav1.ElementalHost) { h.Status.Inventory = nil },
		"reading the virtual IP address": func(c *infrav1.ElementalCluster, _ *infrav1.ElementalHost) {
			c.Spec.ControlPlaneEndpoint.Host = "api.example"
		},
	} {
		t.Run(want, func(t *testing.T) {
			c, h := cluster(address4, infrav1.VIPModeARP, infrav1.DistributionKubeadm), host(infrav1.RoleControlPlane)
			change(c, h)
			_, err := kubevip.File(c, h, kubevip.Facts{})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
		})
	}
}

func TestInterface(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    infrav1.VIPMode
		named   string
		address string
		nics    []infrav1.HostNIC
		want    string
		subnet  bool
	}{
		"in the subnet":               {address: address4, want: "eth1", subnet: true},
		"in the IPv6 subnet":          {address: address6, want: "eth1", subnet: true},
		"in no subnet":                {address: "203.0.113.9", want: "eth0"},
		"named":                       {named: "eth0", address: address4, want: "eth0"},
		"named, in its subnet":        {named: "eth1", address: address4, want: "eth1", subnet: true},
		"named, missing":              {named: "eth7", address: address4},
		"BGP":                         {mode: infrav1.VIPModeBGP, address: address4, want: "lo", subnet: true},
		"BGP, named":                  {mode: infrav1.VIPModeBGP, named: "eth0", address: address4, want: "eth0"},
		"BGP, the loopback named":     {mode: infrav1.VIPModeBGP, named: "lo", address: address4, want: "lo"},
		"subnet of the address alone": {address: address4, nics: []infrav1.HostNIC{{Name: "eth0", Addresses: []string{address4 + "/32"}}}},
		"broken addresses": {address: address4, want: "eth0",
			nics: []infrav1.HostNIC{{Name: "eth0", DefaultRoute: true, Addresses: []string{"192.0.2.11", "?/24"}}}},
		"IPv4 address mapped to IPv6": {address: "::ffff:192.0.2.9", want: "eth1", subnet: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(infrav1.RoleControlPlane)
			if tc.nics != nil {
				h.Status.Inventory.NICs = tc.nics
			}
			vip := &infrav1.EndpointVIP{Mode: tc.mode, Interface: tc.named}
			got, why := kubevip.Interface(vip, tc.address, h)
			g.Expect(got).To(Equal(tc.want))
			if tc.want == "" {
				g.Expect(why).NotTo(BeEmpty())
			} else {
				g.Expect(why).To(BeEmpty())
			}
			g.Expect(kubevip.InSubnet(vip, tc.address, h)).To(Equal(tc.subnet))
		})
	}
}

func TestExtraEnvReplacesSettings(t *testing.T) {
	g := NewWithT(t)
	c := cluster(address4, infrav1.VIPModeARP, infrav1.DistributionKubeadm)
	vipOf(c).Image = "registry.example/kube-vip@sha256:abc"
	vipOf(c).ExtraEnv = []infrav1.EnvVar{{Name: "vip_leaseduration", Value: "15"}, {Name: "vip_loglevel", Value: "-4"}}
	file, err := kubevip.File(c, host(infrav1.RoleControlPlane), kubevip.Facts{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Content).To(ContainSubstring("image: registry.example/kube-vip@sha256:abc\n"))
	g.Expect(file.Content).NotTo(ContainSubstring(kubevip.DefaultImage))
	g.Expect(strings.Count(file.Content, "vip_leaseduration")).To(Equal(1))
	g.Expect(file.Content).To(ContainSubstring("- name: vip_leaseduration\n      value: \"15\"\n"))
	g.Expect(file.Content).To(ContainSubstring("- name: vip_loglevel\n      value: \"-4\"\n"))
}

// Two hosts without an IPv4 address must have different router IDs.
func TestRouterIDs(t *testing.T) {
	g := NewWithT(t)
	id := func(name string) string {
		h := host(infrav1.RoleControlPlane)
		h.Name, h.Status.Addresses = name, h.Status.Addresses[1:2]
		file, err := kubevip.File(cluster(address6, infrav1.VIPModeBGP, infrav1.DistributionKubeadm), h, kubevip.Facts{})
		g.Expect(err).NotTo(HaveOccurred())
		_, rest, found := strings.Cut(file.Content, "- name: bgp_routerid\n      value: ")
		g.Expect(found).To(BeTrue())
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	g.Expect(id("a")).To(Equal(id("a")))
	g.Expect(id("a")).NotTo(Equal(id("b")))
	for i := range 300 {
		g.Expect(id(fmt.Sprint(i))).To(MatchRegexp(`^([1-9]|[1-9]\d|1[01]\d|12[0-7])(\.\d+){3}$`))
	}
}

func TestDistributions(t *testing.T) {
	g := NewWithT(t)
	for kind, want := range map[string]infrav1.Distribution{
		"KubeadmControlPlane": infrav1.DistributionKubeadm, "KThreesControlPlane": infrav1.DistributionK3s,
		"RKE2ControlPlane": infrav1.DistributionRKE2, "KamajiControlPlane": "",
	} {
		g.Expect(kubevip.DistributionOf(kind)).To(Equal(want), kind)
	}
}
