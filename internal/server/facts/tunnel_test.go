package facts

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// addressed returns a host with two addresses.
func addressed(role infrav1.ClaimRole) *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{}
	host.Name = "h1"
	host.Spec.Claim = &infrav1.HostClaim{ID: "c1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound, Role: role}
	for _, ip := range []string{"10.0.0.7", "fd00::7", "127.0.0.1", "fe80::7", "0.0.0.0"} {
		host.Status.Addresses = append(host.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: ip})
	}
	host.Status.Addresses = append(host.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "h1"})
	return host
}

func ofType(kind infrav1.EndpointType) *infrav1.ElementalCluster {
	c := &infrav1.ElementalCluster{}
	c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "c-endpoint", Port: 16443}
	c.Spec.ControlPlaneEndpointPolicy.Type = kind
	if kind == infrav1.EndpointTypeHost {
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "h1"}
	}
	return c
}

func reportOf(apiServer string) protocol.EndpointReport {
	return protocol.EndpointReport{
		Kubeconfigs: "c-endpoint:16443", Workload: "c-endpoint:16443", Rejects: "10.0.0.7:6443", Local: "c-endpoint:16443", Message: "m",
		Probe: &protocol.Probe{Endpoint: "c-endpoint:16443", Reachable: true}, APIServer: &protocol.APIServer{Ready: true, Address: apiServer},
	}
}

func TestReportOfATunnelEndpoint(t *testing.T) {
	g := NewWithT(t)
	reported, err := EndpointOf(new(reportOf("10.0.0.7:6443")), time.Unix(0, 0))
	g.Expect(err).NotTo(HaveOccurred())

	is := AcceptedEndpoint(addressed(infrav1.RoleControlPlane), ofType(infrav1.EndpointTypeTunnel), reported)
	g.Expect(is.Kubeconfigs).To(Equal("c-endpoint:16443"))
	g.Expect(is.Local).To(Equal("c-endpoint:16443"))
	g.Expect(is.Message).To(Equal("m"))
	g.Expect(is.Probe.Endpoint).To(Equal("c-endpoint:16443"))
	g.Expect(is.APIServer.Address).To(Equal("10.0.0.7:6443"))
	g.Expect(is.Workload).To(BeEmpty(), "the name never moves, so there is nothing to publish")
	g.Expect(is.Rejects).To(BeEmpty())

	worker := AcceptedEndpoint(addressed(infrav1.RoleWorker), ofType(infrav1.EndpointTypeTunnel), reported)
	g.Expect(worker).To(HaveValue(Equal(infrav1.HostEndpoint{Kubeconfigs: "c-endpoint:16443", Local: "c-endpoint:16443", Message: "m"})))

	g.Expect(AcceptedEndpoint(addressed(infrav1.RoleControlPlane), nil, reported).APIServer.Address).To(Equal("10.0.0.7:6443"),
		"a host does not repeat it after a restore")
	for _, kind := range []infrav1.EndpointType{infrav1.EndpointTypeHost, infrav1.EndpointTypeVIP} {
		other := AcceptedEndpoint(addressed(infrav1.RoleControlPlane), ofType(kind), reported)
		g.Expect(other.Local).To(BeEmpty(), kind)
		if other.APIServer != nil {
			g.Expect(other.APIServer.Address).To(BeEmpty(), kind)
		}
	}
	foreign := reportOf("10.0.0.7:6443")
	foreign.Probe.Endpoint = "d-endpoint:16443"
	reported, err = EndpointOf(&foreign, time.Unix(0, 0))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(AcceptedEndpoint(addressed(infrav1.RoleControlPlane), ofType(infrav1.EndpointTypeTunnel), reported).Probe).To(BeNil())
}

// Other hosts of the cluster connect to the address, so it has to be the host's own.
func TestThreat36_AddressOfAnAPIServer(t *testing.T) {
	accepted := func(t *testing.T, at string) string {
		t.Helper()
		reported, err := EndpointOf(new(reportOf(at)), time.Unix(0, 0))
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), at)
		return AcceptedEndpoint(addressed(infrav1.RoleControlPlane), ofType(infrav1.EndpointTypeTunnel), reported).APIServer.Address
	}
	for at, want := range map[string]string{
		"10.0.0.7:6443": "10.0.0.7:6443", "[fd00::7]:6443": "[fd00::7]:6443", "[fd00:0::7]:6443": "[fd00::7]:6443", "[::ffff:10.0.0.7]:6443": "10.0.0.7:6443",
		"10.0.0.8:6443": "", "127.0.0.1:6443": "", "0.0.0.0:6443": "", "[fe80::7]:6443": "", "": "",
	} {
		t.Run(at, func(t *testing.T) { NewWithT(t).Expect(accepted(t, at)).To(Equal(want)) })
	}
	for _, invalid := range []string{"10.0.0.7", "10.0.0.7:0", "10.0.0.7:65536", "h1:6443", "[fe80::7%eth0]:6443", "10.0.0.7:6443 ", "https://10.0.0.7:6443"} {
		t.Run("invalid "+invalid, func(t *testing.T) {
			_, err := EndpointOf(new(reportOf(invalid)), time.Unix(0, 0))
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
}

// An address is a step that other hosts wait for, so it is not deferred like evidence.
func TestAddressesAreNoEvidence(t *testing.T) {
	g := NewWithT(t)
	with := func(address, local string, result infrav1.ProbeResult) *infrav1.HostEndpoint {
		return &infrav1.HostEndpoint{Local: local, APIServer: &infrav1.HostAPIServer{Address: address, Result: result}}
	}
	base := with("10.0.0.7:6443", "c:1", infrav1.ProbeReachable)
	g.Expect(OnlyEvidenceDiffers(base, with("10.0.0.7:6443", "c:1", infrav1.ProbeUnreachable))).To(BeTrue())
	g.Expect(OnlyEvidenceDiffers(base, with("10.0.0.8:6443", "c:1", infrav1.ProbeReachable))).To(BeFalse())
	g.Expect(OnlyEvidenceDiffers(base, with("10.0.0.7:6443", "", infrav1.ProbeReachable))).To(BeFalse())
	g.Expect(OnlyEvidenceDiffers(nil, with("", "", infrav1.ProbeReachable))).To(BeTrue())
}
