package docs_test

import (
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Whoever adds a field to hosts says whether it belongs in git.
func TestFieldsOfHostsHaveAWriter(t *testing.T) {
	g := NewWithT(t)
	page := read(t, "docs/gitops.md")
	for field := range reflect.TypeFor[infrav1.ElementalHostSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		g.Expect(page).To(MatchRegexp("`spec\\."+name+"[`.]"), "docs/gitops.md does not say who writes spec.%s", name)
	}
}
