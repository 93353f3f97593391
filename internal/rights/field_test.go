package rights

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestThreat82_UnknownFieldsNeedAllVerbs(t *testing.T) {
	g := NewWithT(t)
	type spec struct{ Known, New string }
	classOf := func(field string) (Verb, bool) { return free, field == "Known" }
	g.Expect(ofFields(spec{}, spec{Known: "a"}, classOf)).To(BeEmpty())
	g.Expect(ofFields(spec{}, spec{Known: "a", New: "b"}, classOf)).To(Equal(All()))
	g.Expect(ofFields(spec{New: "b"}, spec{}, classOf)).To(Equal(All()))
}
