package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func gatewayFlags(g *WithT, args ...string) *gatewayOptions {
	o := &gatewayOptions{}
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.addFlags(fs)
	g.Expect(fs.Parse(args)).To(Succeed())
	return o
}

func TestClusterDomain(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"of a Pod":                          {"search ns.svc.example.org svc.example.org example.org corp.example.com\nnameserver 10.96.0.10\noptions ndots:5\n", "example.org"},
		"of a Pod in a namespace named svc": {"search svc.svc.example.org svc.example.org example.org\n", "example.org"},
		"of a machine":                      {"# written by somebody\nsearch corp.example.com\nnameserver 192.0.2.1\n", "cluster.local"},
		"with two lists":                    {"search a.svc.first.example svc.first.example first.example\nsearch a.svc.second.example svc.second.example second.example\n", "second.example"},
		"of a machine in such a domain":     {"search svc.corp.example.com corp.example.com\n", "cluster.local"},
		"empty":                             {"", "cluster.local"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "resolv.conf")
			g.Expect(os.WriteFile(file, []byte(tc.text), 0o600)).To(Succeed())
			g.Expect(clusterDomain(file)).To(Equal(tc.want))
		})
	}
	NewWithT(t).Expect(clusterDomain(filepath.Join(t.TempDir(), "none"))).To(Equal("cluster.local"))
}

func TestGatewaySettings(t *testing.T) {
	g := NewWithT(t)
	s := gatewayFlags(g, "--cluster-domain=example.org", "--endpoint-port=8443").settings("elemental-system")
	g.Expect(s.Gateway).To(Equal("elemental-gateway.elemental-system.svc.example.org"))
	g.Expect(s.Port).To(BeEquivalentTo(8443))
	g.Expect(s.Names.Of("sites", "edge")).To(Equal("edge-endpoint.sites.svc.example.org"))
	g.Expect(gatewayFlags(g).settings("elemental-system").Port).To(BeEquivalentTo(16443))
}

// A management cluster may have thousands of Services of others.
func TestForeignServicesAreNotCached(t *testing.T) {
	g := NewWithT(t)
	o, err := cacheOptions(newOptions())
	g.Expect(err).NotTo(HaveOccurred())
	found := false
	for object, by := range o.ByObject {
		if _, ok := object.(*corev1.Service); ok {
			found = true
			g.Expect(by.Label.Matches(labels.Set{infrav1.EndpointServiceLabel: ""})).To(BeTrue())
			g.Expect(by.Label.Matches(labels.Set{"app": "another"})).To(BeFalse())
		}
	}
	g.Expect(found).To(BeTrue())
}

func TestInvalidGatewayFlags(t *testing.T) {
	for message, arg := range map[string]string{
		"--endpoint-port must be between 1 and 65535":               "--endpoint-port=0",
		"--endpoint-port must not be 6443, because API servers":     "--endpoint-port=6443",
		"--endpoint-port must not be 9345":                          "--endpoint-port=9345",
		"--cluster-domain must be a domain of at most 120":          "--cluster-domain=.local",
		"--endpoint-domain must be a domain of at most 120":         "--endpoint-domain=*.example.com",
		"--endpoint-domain must be a domain of at most 120 charact": "--endpoint-domain=" + strings.Repeat("a.", 60) + "a",
	} {
		g := NewWithT(t)
		g.Expect(gatewayFlags(g, arg).validate()).To(MatchError(ContainSubstring(message)))
	}
	for _, url := range []string{"http://a.example", "a.example", "https://", "https://a.example/clusters", "https://a.example?x=y", "https://a.example:x"} {
		g := NewWithT(t)
		g.Expect(gatewayFlags(g, "--gateway-url="+url).validate()).To(MatchError(ContainSubstring("--gateway-url must be https://host[:port]")), url)
	}
	g := NewWithT(t)
	g.Expect(gatewayFlags(g, "--gateway-url=https://gateway.example.com:8443").validate()).To(Succeed())
	g.Expect(gatewayFlags(g, "--endpoint-domain=clusters.example.com").validate()).To(Succeed())
}
