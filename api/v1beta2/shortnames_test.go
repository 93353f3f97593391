package v1beta2_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Each kind has the short name of the reference, and `kubectl get` with it means no other resource:
// none of Kubernetes, of Cluster API or of kubeadm's providers has that name.
func TestShortNames(t *testing.T) {
	g := NewWithT(t)
	client, err := discovery.NewDiscoveryClientForConfig(env.Config)
	g.Expect(err).NotTo(HaveOccurred())
	_, lists, err := client.ServerGroupsAndResources()
	g.Expect(err).NotTo(HaveOccurred())
	own, users := map[string][]string{}, map[string]map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		g.Expect(err).NotTo(HaveOccurred())
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			if version.Group == infrav1.GroupVersion.Group {
				own[r.Kind] = r.ShortNames
			}
			for _, name := range append([]string{r.Name, r.SingularName}, r.ShortNames...) {
				if users[name] == nil {
					users[name] = map[string]bool{}
				}
				users[name][version.Group+"/"+r.Name] = true
			}
		}
	}
	g.Expect(own).To(Equal(map[string][]string{
		"ElementalHost": {"eh"}, "ElementalHostGrant": {"ehg"}, "ElementalRegistration": {"ereg"},
		"ElementalCluster": {"ec"}, "ElementalClusterTemplate": {"ect"},
		"ElementalMachine": {"em"}, "ElementalMachineTemplate": {"emt"},
		"ElementalRemediation": {"erem"}, "ElementalRemediationTemplate": {"eremt"},
		"ElementalKubernetesRelease": {"ekr"}, "ElementalEtcdRestore": {"eer"},
	}))
	g.Expect(users).To(HaveKey("kcp"), "the names of Cluster API are among those that are compared")
	for kind, names := range own {
		for _, name := range names {
			g.Expect(users[name]).To(HaveLen(1), "%s of %s", name, kind)
		}
	}
}
