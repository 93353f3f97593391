package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// bloated returns the inventory that takes most bytes in the API server for the bytes of a
// report. It differs with i.
func bloated(i int) protocol.Inventory {
	inventory := protocol.Inventory{MachineID: fmt.Sprint(i)}
	for range protocol.MaxDevices {
		nic := protocol.NIC{Name: "n"}
		for range 12 {
			nic.Addresses = append(nic.Addresses, strings.Repeat("<", 256))
		}
		inventory.NICs = append(inventory.NICs, nic)
	}
	return inventory
}

// unescaped encodes a report as the shortest JSON.
func unescaped(report protocol.Report) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(report)
	return out.String()
}

// statusSize returns the size of a host's status in the API server.
func (h *harness) statusSize(name string) int {
	h.tb.Helper()
	raw, err := json.Marshal(h.host(name).Status)
	h.must(err)
	return len(raw)
}

// An enrolled host that reports as much as it can, as often as it can, makes the manager
// write a bounded number of bytes a minute.
func TestThreat44_ReportsOfARogue(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	inventory := bloated(0)
	body := unescaped(protocol.Report{Inventory: &inventory})
	g.Expect(len(body)).To(And(BeNumerically(">", 190_000), BeNumerically("<", protocol.MaxRequestBytes)))
	g.Expect(a.call(http.MethodPost, protocol.PathReport, body).status).To(Equal(http.StatusNoContent))
	g.Expect(h.statusSize(a.name)).To(BeNumerically("<=", 64<<10))

	// Small reports rewrite the large status.
	var refused answer
	for i := range 200 {
		h.step(time.Second / 2)
		got := a.report(protocol.Report{Hello: &protocol.Hello{BootID: fmt.Sprint(i)}})
		if got.status != http.StatusNoContent {
			refused = got
		}
	}
	g.Expect(refused.status).To(Equal(http.StatusTooManyRequests))
	g.Expect(refused.header.Get("Retry-After")).NotTo(BeEmpty())
	h.writes.take()
	const minutes = 10
	for i := range minutes * 60 {
		h.step(time.Second)
		a.report(protocol.Report{Hello: &protocol.Hello{BootID: fmt.Sprint("b", i)}})
	}
	g.Expect(len(h.writes.take()) * (64 << 10)).To(BeNumerically("<=", minutes*160<<10))
	g.Expect(h.metric("elemental_agent_api_limited_writes_total")).To(BeNumerically(">", 100))

	// A rotation counts too.
	g.Expect(a.rotate(h.agent(), 1).status).To(Equal(http.StatusTooManyRequests))
	h.step(10 * time.Minute)
	g.Expect(a.rotate(h.agent(), 1).status).To(Equal(http.StatusNoContent))
	g.Expect(a.report(protocol.Report{Hello: &protocol.Hello{BootID: "last"}}).status).To(Equal(http.StatusNoContent))
	g.Expect(h.host(a.name).Status.Agent.BootID).To(Equal("last"))
}

// A host that nobody has approved gets little room. Once it is approved, it reports
// everything.
func TestThreat44_StatusOfAPendingHost(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", func(r *infrav1.ElementalRegistration) { r.Spec.Approval = infrav1.ApprovalManual })
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	request := enrolRequest()
	request.Inventory = bloated(0)
	rogue := h.agent()
	got, err := rogue.do(t.Context(), http.MethodPost, protocol.PathEnrol, token, request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.status).To(Equal(http.StatusRequestEntityTooLarge), "escaped it is too long")
	request.Inventory.NICs = request.Inventory.NICs[:8]
	g.Expect(rogue.enrolAs(token, request).status).To(Equal(http.StatusOK))
	g.Expect(h.statusSize(rogue.name)).To(BeNumerically("<=", 4<<10))

	// An honest server with many disks waits for its plan while it is approved.
	request.Inventory = enrolRequest().Inventory
	for i := range 40 {
		request.Inventory.Disks = append(request.Inventory.Disks, protocol.Disk{Name: fmt.Sprintf("sd%d", i), Model: "Example Disk 4T", Serial: fmt.Sprint(i)})
	}
	honest := h.agent()
	g.Expect(honest.enrolAs(token, request).status).To(Equal(http.StatusOK))
	revision := honest.plan("").Revision
	facts := protocol.Report{Inventory: &request.Inventory}
	h.writes.take()
	g.Expect(honest.report(facts).status).To(Equal(http.StatusNoContent))
	g.Expect(h.writes.take()).To(BeEmpty(), "facts that there is no room for cause no writes")
	g.Expect(h.host(honest.name).Status.Inventory.Disks).NotTo(HaveLen(40))
	waiting := honest.poll(t.Context(), revision)
	h.polling(1)
	h.patch(honest.name, approved)
	again := receive(t, waiting)
	g.Expect(again.status).To(Equal(http.StatusServiceUnavailable), "an error makes the agent report everything again")
	g.Expect(again.header.Get("Retry-After")).To(Equal("1"))
	honest.plan("")
	g.Expect(honest.report(facts).status).To(Equal(http.StatusNoContent))
	g.Expect(h.host(honest.name).Status.Inventory.Disks).To(HaveLen(40))
	honest.plan("")
}

// A pending host that has used up its write budget is refused before its report is read.
func TestThreat44_ReportsThatCanNotBeWritten(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", func(r *infrav1.ElementalRegistration) { r.Spec.Approval = infrav1.ApprovalManual })
	token, _ := h.token("edge")
	rogue := h.agent()
	g.Expect(rogue.enrol(token).status).To(Equal(http.StatusOK))
	report := func(boot int) int {
		h.step(time.Second)
		return rogue.report(protocol.Report{Hello: &protocol.Hello{BootID: fmt.Sprint(boot)}}).status
	}
	for boot := 0; report(boot) == http.StatusNoContent; boot++ {
		g.Expect(boot).To(BeNumerically("<", 100))
	}
	before := h.metric("elemental_agent_api_limited_writes_total")
	got := rogue.call(http.MethodPost, protocol.PathReport, "{ no JSON")
	g.Expect(got.status).To(Equal(http.StatusTooManyRequests))
	g.Expect(got.header.Get("Retry-After")).NotTo(BeEmpty())
	g.Expect(h.metric("elemental_agent_api_limited_writes_total")).To(Equal(before + 1))

	// It may still ask whether it is known, which causes no write.
	h.writes.take()
	g.Expect(rogue.report(protocol.Report{}).status).To(Equal(http.StatusNoContent))
	g.Expect(h.writes.take()).To(BeEmpty())

	// Approved, it has another budget.
	h.cachedSoon(h.patch(rogue.name, approved))
	g.Expect(report(1000)).To(Equal(http.StatusNoContent))
}
