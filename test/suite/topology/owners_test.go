//go:build embedded

package topology_test

import (
	"encoding/json"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// topologyManager is the field manager of Cluster API's topology controller.
const topologyManager = "capi-topology"

// owners returns the field managers of what this provider writes into the ElementalCluster, and of what the class says.
func (m made) owners(g Gomega) map[string][]string {
	all := map[string][]string{}
	for name, path := range map[string][]string{
		"endpoint":   {"f:spec", "f:controlPlaneEndpoint"},
		"finalizers": {"f:metadata", "f:finalizers"},
		"policy":     {"f:spec", "f:controlPlaneEndpointPolicy", "f:type"},
	} {
		for _, entry := range m.infra.ManagedFields {
			var fields map[string]any
			g.Expect(json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields)).To(Succeed())
			if _, found, err := unstructured.NestedFieldNoCopy(fields, path...); err == nil && found {
				all[name] = append(all[name], entry.Manager)
			}
		}
	}
	return all
}

// expectOwners expects that the topology controller owns what the class says, and nothing of what this provider writes.
func (m made) expectOwners(g Gomega) {
	owners := m.owners(g)
	g.Expect(owners["policy"]).To(ContainElement(topologyManager))
	for _, name := range []string{"endpoint", "finalizers"} {
		g.Expect(owners[name]).NotTo(BeEmpty(), name)
		g.Expect(owners[name]).NotTo(ContainElement(topologyManager), name)
	}
}
