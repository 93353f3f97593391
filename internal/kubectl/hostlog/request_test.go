package hostlog_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/hostlog"
)

// People can ask for the log of every operation that the API knows, by its name in lower case.
func TestOperationsAreThoseOfTheAPI(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../../config/crd/bases/infrastructure.cluster.x-k8s.io_elementalhosts.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	crd := &apiextensionsv1.CustomResourceDefinition{}
	g.Expect(yaml.Unmarshal(text, crd)).To(Succeed())
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	known := map[string]infrav1.OperationType{}
	for _, value := range spec.Properties["logRequest"].Properties["operation"].Enum {
		var name infrav1.OperationType
		g.Expect(json.Unmarshal(value.Raw, &name)).To(Succeed())
		known[strings.ToLower(string(name))] = name
	}
	g.Expect(known).NotTo(BeEmpty())
	g.Expect(hostlog.Operations()).To(Equal(known))

	page, err := os.ReadFile("../../../docs/kubectl.md")
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range slices.Sorted(maps.Keys(known)) {
		g.Expect(string(page)).To(ContainSubstring("`" + name + "`"))
	}
}
