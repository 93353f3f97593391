package server_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// What a host reports about its bundle is written with the condition and the Event that
// follow from it. Rubbish is not written.
func TestReportOfABundle(t *testing.T) {
	b := newBundles(t, 1000)
	a := b.node("m", func(h *infrav1.ElementalHost) { h.Spec.Bundle = new(b.of(b.digest, "manager")) })
	inventory := enrolRequest().Inventory
	inventory.Kubernetes = &protocol.Kubernetes{}
	b.Expect(a.report(protocol.Report{Inventory: &inventory}).status).To(Equal(http.StatusNoContent))
	b.cachedSoon(b.host(a.name))
	b.writes.take()
	report := func(writes int, in protocol.BundleReport) {
		b.THelper()
		got := a.report(protocol.Report{Bundle: &in})
		b.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
		b.cachedSoon(b.host(a.name))
		b.Expect(b.writes.take()).To(HaveLen(writes))
	}
	prepared := func() string {
		return meta.FindStatusCondition(b.host(a.name).Status.Conditions, infrav1.PreparedCondition).Message
	}
	report(1, protocol.BundleReport{SHA256: b.digest, State: protocol.BundleStaging, Message: "fetched 1 MiB"})
	b.Expect(prepared()).To(HaveSuffix("the host has yet to fetch"))
	report(0, protocol.BundleReport{SHA256: b.digest, State: protocol.BundleStaging, Message: "fetched 1 MiB"})
	report(0, protocol.BundleReport{SHA256: b.other, State: protocol.BundleStaged})
	report(0, protocol.BundleReport{SHA256: b.digest, State: "Odd", Message: strings.Repeat("x", 200<<10)})
	report(1, protocol.BundleReport{SHA256: b.digest, Version: "v9", State: protocol.BundleStaged})
	b.Expect(b.host(a.name).Status.Bundle).To(Equal(&infrav1.HostBundleStatus{SHA256: b.digest, Version: "v1.36.3", State: infrav1.BundleStaged}))
	b.Expect(prepared()).To(HaveSuffix("is staged"))
	b.Expect(b.events()).To(ContainElement(ContainSubstring("BundleStaged")))
	report(1, protocol.BundleReport{})
	b.Expect(b.host(a.name).Status.Bundle).To(BeNil())
}

// A host whose bundle changes its state all the time is slowed down.
func TestThreat44_BundleThatChangesAllTheTime(t *testing.T) {
	b := newBundles(t, 1000)
	a := b.node("m", func(h *infrav1.ElementalHost) { h.Spec.Bundle = new(b.of(b.digest, "manager")) })
	b.writes.take()
	states := []protocol.BundleState{protocol.BundleStaging, protocol.BundleFailed}
	for i := 0; ; i++ {
		if i == 1000 {
			t.Fatal("a thousand reports were written")
		}
		in := protocol.BundleReport{SHA256: b.digest, State: states[i%2], Message: strings.Repeat("<", 150) + strings.Repeat("x", i)}
		if a.report(protocol.Report{Bundle: &in}).status == http.StatusTooManyRequests {
			break
		}
	}
	b.Expect(len(b.writes.take())).To(BeNumerically("<", 200))
}
