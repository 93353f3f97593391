package endpointname_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
)

func TestLabel(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster string
		want    string
	}{
		"a name that fits":            {"edge", "edge-endpoint"},
		"with digits and dashes":      {"edge-42", "edge-42-endpoint"},
		"as long as a label can be":   {strings.Repeat("a", 54), strings.Repeat("a", 54) + "-endpoint"},
		"too long":                    {strings.Repeat("a", 55), "c9f4390f8d3-endpoint"},
		"with a dot":                  {"edge.example", "c103ece1c53-endpoint"},
		"with a leading digit":        {"42-edge", "cbf1f8de334-endpoint"},
		"a name like a hash":          {"c9f4390f8d3", "c166ab530bd-endpoint"},
		"a name longer than a hash":   {"c9f4390f8d30", "c9f4390f8d30-endpoint"},
		"a name with another initial": {"d9f4390f8d3", "d9f4390f8d3-endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			label := endpointname.Label(tc.cluster)
			g.Expect(label).To(Equal(tc.want))
			g.Expect(validation.IsDNS1035Label(label)).To(BeEmpty(), "it is the name of a Service")
		})
	}
}

func TestNames(t *testing.T) {
	g := NewWithT(t)
	names := endpointname.Names{ClusterDomain: "cluster.local"}
	g.Expect(names.Of("sites", "edge")).To(Equal("edge-endpoint.sites.svc.cluster.local"))
	g.Expect(names.Service("elemental-system", "elemental-gateway")).To(Equal("elemental-gateway.elemental-system.svc.cluster.local"))
	names.EndpointDomain = "Clusters.Example.com"
	g.Expect(names.Of("sites", "edge")).To(Equal("edge-endpoint.sites.clusters.example.com"))
	g.Expect(names.Service("elemental-system", "elemental-gateway")).To(Equal("elemental-gateway.elemental-system.svc.cluster.local"))
}

// Neither a namespace nor a name of a Cluster can be chosen so that the name is another
// cluster's.
func TestNamesOfDifferentClustersDiffer(t *testing.T) {
	g := NewWithT(t)
	names := endpointname.Names{ClusterDomain: "cluster.local"}
	seen := map[string]string{}
	for _, cluster := range [][2]string{
		{"a", "b"}, {"b", "a"}, {"a", "b.a"}, {"a", "b-endpoint"}, {"a", "b-endpoint.a"}, {"a", strings.Repeat("b", 55)}, {"a", strings.Repeat("b", 56)},
	} {
		name := names.Of(cluster[0], cluster[1])
		g.Expect(seen).NotTo(HaveKey(name))
		seen[name] = cluster[1]
	}
}

func TestLongestNameFits(t *testing.T) {
	longest := strings.Repeat("a", 63)
	names := endpointname.Names{ClusterDomain: strings.Repeat("a.", endpointname.MaxDomain/2)[:endpointname.MaxDomain]}
	NewWithT(t).Expect(len(names.Of(longest, longest[:54]))).To(BeNumerically("<=", 253))
}
