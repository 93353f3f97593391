package main

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// counting is a RESTMapper that counts its calls.
type counting struct {
	meta.RESTMapper

	asked int
}

func (c *counting) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	c.asked++
	return c.RESTMapper.RESTMapping(kind, versions...)
}

func TestMapperRemembersKindsThatThereAre(t *testing.T) {
	g := NewWithT(t)
	known := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "g", Version: "v1"}})
	inner := &counting{RESTMapper: known}
	m := &cachingMapper{RESTMapper: inner}
	host := schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Host"}
	_, err := m.RESTMapping(host.GroupKind(), "v1")
	g.Expect(meta.IsNoMatchError(err)).To(BeTrue())
	known.Add(host, meta.RESTScopeNamespace)
	for range 3 {
		found, err := m.RESTMapping(host.GroupKind(), "v1")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Scope).To(Equal(meta.RESTScopeNamespace))
	}
	g.Expect(inner.asked).To(Equal(2), "mappings are cached, errors are not")
	other := host
	other.Version = "v2"
	known.Add(other, meta.RESTScopeRoot)
	found, err := m.RESTMapping(other.GroupKind(), "v2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.GroupVersionKind).To(Equal(other))
	for range 2 {
		_, err = m.RESTMapping(host.GroupKind())
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(inner.asked).To(Equal(5), "the preferred version may change")
}
