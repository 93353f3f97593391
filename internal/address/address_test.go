package address_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

// edge returns a dual-stack host with two interfaces.
func edge() *infrav1.ElementalHost {
	ip := func(a string) clusterv1.MachineAddress {
		return clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a}
	}
	return &infrav1.ElementalHost{Status: infrav1.ElementalHostStatus{
		Addresses: []clusterv1.MachineAddress{
			ip("nonsense"), ip("127.0.0.1"), ip("fe80::1"), ip("fe80::1%eth0"), ip("0.0.0.0"),
			ip("10.0.0.1"), ip("2001:DB8:0:0::1"), ip("192.168.7.1"), ip("2001:db8:7::1"),
			{Type: clusterv1.MachineExternalIP, Address: "198.51.100.7"},
			{Type: clusterv1.MachineHostName, Address: "edge_1"}, {Type: clusterv1.MachineHostName, Address: "edge-.x"},
			{Type: clusterv1.MachineHostName, Address: "edge-1"},
		},
		Inventory: &infrav1.HostInventory{NICs: []infrav1.HostNIC{
			{Name: "eth0", DefaultRoute: true, Addresses: []string{"10.0.0.1/24", "2001:db8::1/64"}},
			{Name: "eth1", Addresses: []string{"nonsense", "192.168.7.1/24", "2001:db8:7::1/64"}},
		}},
	}}
}

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		rule      infrav1.HostAddressRule
		want, why string
	}{
		"default":                {infrav1.HostAddressRule{}, "10.0.0.1", ""},
		"type":                   {infrav1.HostAddressRule{Type: "ExternalIP"}, "198.51.100.7", ""},
		"hostname":               {infrav1.HostAddressRule{Type: "Hostname"}, "edge-1", ""},
		"interface":              {infrav1.HostAddressRule{Interface: "eth1"}, "192.168.7.1", ""},
		"interface, family":      {infrav1.HostAddressRule{Interface: "eth1", Family: infrav1.IPv6}, "2001:db8:7::1", ""},
		"family, written anew":   {infrav1.HostAddressRule{Family: infrav1.IPv6}, "2001:db8::1", ""},
		"family IPv4":            {infrav1.HostAddressRule{Family: infrav1.IPv4}, "10.0.0.1", ""},
		"CIDR":                   {infrav1.HostAddressRule{CIDR: "192.168.0.0/16"}, "192.168.7.1", ""},
		"CIDR of IPv6":           {infrav1.HostAddressRule{CIDR: "2001:db8:7::/48"}, "2001:db8:7::1", ""},
		"no such interface":      {infrav1.HostAddressRule{Interface: "eth9"}, "", "without a known InternalIP on interface eth9"},
		"not in CIDR":            {infrav1.HostAddressRule{CIDR: "172.16.0.0/12", Family: infrav1.IPv4}, "", "without a known InternalIP of family IPv4 in 172.16.0.0/12"},
		"interface and CIDR":     {infrav1.HostAddressRule{Interface: "eth0", CIDR: "192.168.0.0/16"}, "", "without a known InternalIP in 192.168.0.0/16 on interface eth0"},
		"link-local stays local": {infrav1.HostAddressRule{CIDR: "fe80::/10"}, "", "without a known InternalIP in fe80::/10"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, why := address.ByRule(edge(), tc.rule)
			g.Expect([]string{got, why}).To(Equal([]string{tc.want, tc.why}))
		})
	}
}

func TestOfAHostThatSaidNothing(t *testing.T) {
	g := NewWithT(t)
	got, why := address.ByRule(&infrav1.ElementalHost{}, infrav1.HostAddressRule{Interface: "eth0"})
	g.Expect([]string{got, why}).To(Equal([]string{"", "without a known InternalIP on interface eth0"}))
}

func TestOfPolicy(t *testing.T) {
	g := NewWithT(t)
	got, _ := address.ForEndpoint(edge(), infrav1.ControlPlaneEndpointPolicy{})
	g.Expect(got).To(Equal("10.0.0.1"))
	policy := infrav1.ControlPlaneEndpointPolicy{Host: &infrav1.EndpointHostPolicy{Address: infrav1.HostAddressRule{CIDR: "192.168.7.0/24"}}}
	got, why := address.ForEndpoint(edge(), policy)
	g.Expect([]string{got, why}).To(Equal([]string{"192.168.7.1", ""}))
	_, why = address.ForEndpoint(&infrav1.ElementalHost{}, policy)
	g.Expect(why).To(Equal("without a known InternalIP in 192.168.7.0/24 (controlPlaneEndpointPolicy.host.address)"))
}

func TestHas(t *testing.T) {
	for name, tc := range map[string]struct {
		host       *infrav1.ElementalHost
		address    string
		has, known bool
	}{
		"one":                   {edge(), "10.0.0.1", true, true},
		"a later one":           {edge(), "192.168.7.1", true, true},
		"written anew":          {edge(), "2001:db8:0::0:1", true, true},
		"none":                  {edge(), "10.0.0.2", false, true},
		"no reported addresses": {&infrav1.ElementalHost{}, "10.0.0.1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			has, known := address.Has(tc.host, tc.address)
			NewWithT(t).Expect([]bool{has, known}).To(Equal([]bool{tc.has, tc.known}))
		})
	}
}

func TestCovers(t *testing.T) {
	names := []string{"10.0.0.1", "2001:db8::1", "API.example.org", "*.edge.example.org"}
	for name, want := range map[string]bool{
		"10.0.0.1": true, "10.0.0.2": false, "2001:db8:0::1": true, "::ffff:10.0.0.1": true, "api.example.org": true, "example.org": false,
		"box.edge.example.org": true, "a.box.edge.example.org": false, "edge.example.org": false, "": false,
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(address.Covers(names, name)).To(Equal(want))
		})
	}
	NewWithT(t).Expect(address.Covers(nil, "10.0.0.1")).To(BeFalse())
	NewWithT(t).Expect(address.Covers([]string{"*.0.0.1"}, "10.0.0.1")).To(BeFalse(), "a wildcard is for names")
}
