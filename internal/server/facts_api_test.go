package server_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestReportedClockAndErasure(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	hello := enrolRequest().Hello
	reportSkew := func(ahead time.Duration) {
		t.Helper()
		at := h.clock.Now().Add(ahead)
		hello.Time = &at
		g.Expect(a.report(protocol.Report{Hello: &hello}).status).To(Equal(http.StatusNoContent))
	}
	reportSkew(10 * time.Second)
	g.Expect(h.writes.take()).To(BeEmpty())
	reportSkew(125 * time.Second)
	reportSkew(150 * time.Second)
	g.Expect(h.writes.take()).To(HaveLen(1), "seconds cause no write")
	g.Expect(h.host(a.name).Status.Agent.ClockSkewSeconds).To(BeEquivalentTo(120))

	h.cachedSoon(h.patch(a.name, bound("c1")))
	h.cachedSoon(h.patch(a.name, releasing))
	disks := []protocol.ErasedDisk{{Name: "sda", Result: protocol.Erased, SizeBytes: 5}}
	got := a.reportOperation(protocol.OperationReset, "c1", protocol.StateSucceeded, func(op *protocol.OperationReport) { op.Erased = disks })
	g.Expect(got.status).To(Equal(http.StatusNoContent))
	g.Expect(h.host(a.name).Status.Erasure).To(Equal(&infrav1.HostErasure{
		OperationID: "c1", Disks: []infrav1.ErasedDisk{{Name: "sda", Result: infrav1.ErasureErased, SizeBytes: 5}},
	}))
}
