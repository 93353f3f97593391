package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func (a *agent) report(r protocol.Report) answer {
	a.h.tb.Helper()
	return a.call(http.MethodPost, protocol.PathReport, r)
}

func (a *agent) reportOperation(kind protocol.OperationType, id string, state protocol.OperationState, change ...func(*protocol.OperationReport)) answer {
	a.h.tb.Helper()
	op := protocol.OperationReport{Type: kind, ID: id, State: state}
	for _, f := range change {
		f(&op)
	}
	return a.report(protocol.Report{Operations: []protocol.OperationReport{op}})
}

// ready returns an agent of an approved host, and drops the writes of its enrolment.
func (h *harness) ready() *agent {
	h.tb.Helper()
	h.registration("edge")
	token, _ := h.token("edge")
	a := h.enrolled(token)
	h.cachedSoon(h.host(a.name))
	h.writes.take()
	return a
}

func TestReportIsWrittenOnceWithItsConditions(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.cachedSoon(h.patch(a.name, bound("c1")))

	started, finished := h.clock.Now().Add(-time.Minute), h.clock.Now()
	failed := func(op *protocol.OperationReport) {
		op.Step, op.Message, op.StartedAt, op.FinishedAt = "runcmd", "exit status 1", &started, &finished
	}
	got := a.reportOperation(protocol.OperationBootstrap, "c1", protocol.StateFailed, failed)
	g.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	host := h.host(a.name)
	condition := meta.FindStatusCondition(host.Status.Conditions, infrav1.BootstrappedCondition)
	g.Expect(condition.Reason).To(Equal(infrav1.BootstrapFailedReason))
	g.Expect(condition.Message).To(ContainSubstring("exit status 1"))
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost/status"}))

	// Repeated and late reports change nothing.
	g.Expect(a.reportOperation(protocol.OperationBootstrap, "c1", protocol.StateFailed, failed).status).To(Equal(http.StatusNoContent))
	g.Expect(a.reportOperation(protocol.OperationBootstrap, "c1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	g.Expect(a.reportOperation(protocol.OperationBootstrap, "c1", protocol.StateRunning).status).To(Equal(http.StatusNoContent))
	g.Expect(h.writes.take()).To(BeEmpty())
	g.Expect(h.host(a.name).Operation(infrav1.OperationBootstrap, "c1").State).To(Equal(infrav1.OperationFailed))
}

func TestReportOfUnrequestedOperation(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	refused := func(kind protocol.OperationType, id string) {
		t.Helper()
		got := a.reportOperation(kind, id, protocol.StateSucceeded)
		g.Expect(got.status).To(Equal(http.StatusConflict))
		g.Expect(got.problem().Type).To(Equal(protocol.ProblemNoOperation))
	}
	refused(protocol.OperationBootstrap, "c1")
	h.cachedSoon(h.patch(a.name, bound("c1")))
	refused(protocol.OperationBootstrap, "c0")
	refused(protocol.OperationReset, "c0")
	for _, state := range []protocol.OperationState{protocol.StateRunning, protocol.StateFailed} {
		g.Expect(a.reportOperation(protocol.OperationReset, "c1", state).status).To(Equal(http.StatusConflict), "a bound host is not being reset")
	}
	g.Expect(h.writes.take()).To(BeEmpty())

	h.cachedSoon(h.patch(a.name, releasing))
	// A failed reset is retried; a successful one is final.
	for _, state := range []protocol.OperationState{protocol.StateFailed, protocol.StateSucceeded} {
		g.Expect(a.reportOperation(protocol.OperationReset, "c1", state).status).To(Equal(http.StatusNoContent))
		g.Expect(h.host(a.name).Operation(infrav1.OperationReset, "c1").State).To(BeEquivalentTo(state))
	}
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Claim = nil }))
	g.Expect(a.reportOperation(protocol.OperationReset, "c1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent), "a repeat")
	refused(protocol.OperationReset, "c2")
}

// The management cluster was restored from a backup that is older than the reset.
func TestReportOfAResetBeforeARestore(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.cachedSoon(h.patch(a.name, bound("c1")))
	g.Expect(a.reportOperation(protocol.OperationReset, "c1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	host := h.host(a.name)
	g.Expect(host.Operation(infrav1.OperationReset, "c1").State).To(Equal(infrav1.OperationSucceeded))
	g.Expect(meta.FindStatusCondition(host.Status.Conditions, infrav1.BootstrappedCondition).Reason).To(Equal(infrav1.AlreadyResetReason))
}

func TestThreat30_InventoryIsBounded(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.cachedSoon(h.patch(a.name, bound("c1")))
	inventory := protocol.Inventory{MachineID: strings.Repeat("m", 1000), MemoryBytes: -5, OS: protocol.OS{PrettyName: "a\x00b\x1b[31m"}}
	var addresses []protocol.Address
	leftovers := make([]string, 100)
	for i := range 100 {
		inventory.Disks = append(inventory.Disks, protocol.Disk{Name: "sd"})
		inventory.NICs = append(inventory.NICs, protocol.NIC{})
		addresses = append(addresses, protocol.Address{Type: protocol.AddressInternalIP, Address: "10.0.0.1"},
			protocol.Address{Type: protocol.AddressInternalIP, Address: "not an address"}, protocol.Address{Type: "Odd", Address: "10.0.0.1"})
		leftovers[i] = strings.Repeat("l", 1000)
	}
	got := a.report(protocol.Report{
		Hello:       &protocol.Hello{Protocol: 1 << 40, Capabilities: make([]protocol.Capability, 100)},
		Inventory:   &inventory,
		Addresses:   addresses,
		Cleanliness: &protocol.Cleanliness{Leftovers: leftovers},
		Operations: []protocol.OperationReport{{
			Type: protocol.OperationBootstrap, ID: "c1", State: protocol.StateFailed, Message: strings.Repeat("é", 1000) + "\xff", Step: strings.Repeat("s", 1000),
		}},
	})
	g.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	status := h.host(a.name).Status
	g.Expect(status.Inventory.MachineID).To(HaveLen(256))
	g.Expect(status.Inventory.MemoryBytes).To(BeZero())
	g.Expect(status.Inventory.OS.PrettyName).To(Equal("ab[31m"))
	g.Expect(status.Inventory.Disks).To(HaveLen(protocol.MaxDevices))
	g.Expect(status.Inventory.NICs).To(BeEmpty())
	g.Expect(status.Addresses).To(HaveLen(protocol.MaxDevices))
	g.Expect(status.Cleanliness.Leftovers).To(HaveLen(protocol.MaxLeftovers))
	message := status.Operations[0].Message
	g.Expect(len(message)).To(BeNumerically("<=", protocol.MaxMessageBytes))
	g.Expect(utf8.ValidString(message)).To(BeTrue())

	large := `{"inventory":{"machineID":"` + strings.Repeat("x", protocol.MaxRequestBytes) + `"}}`
	g.Expect(a.call(http.MethodPost, protocol.PathReport, large).status).To(Equal(http.StatusRequestEntityTooLarge))
}

func TestBadRequests(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, protocol.PathReport, `{`, 400},
		{http.MethodPost, protocol.PathReport, `[]`, 400},
		{http.MethodPost, protocol.PathReport, `{} {}`, 400},
		{http.MethodPost, protocol.PathReport, `{"operations":[{"type":"Format","id":"c1","state":"Succeeded"}]}`, 400},
		{http.MethodPost, protocol.PathReport, `{"operations":[{"type":"Reset","id":"c1","state":"Odd"}]}`, 400},
		{http.MethodPost, protocol.PathReport, `{"operations":[{"type":"Reset","id":"","state":"Failed"}]}`, 400},
		{http.MethodPost, protocol.PathReport, `{"operations":[{"type":"Reset","id":"` + strings.Repeat("x", 64) + `","state":"Failed"}]}`, 400},
		{http.MethodPost, protocol.PathReport, `{"operations":[{},{},{},{},{},{},{},{},{}]}`, 400},
		{http.MethodPost, protocol.PathReport, `"` + strings.Repeat("x", protocol.MaxRequestBytes) + `"`, 413},
		{http.MethodPost, protocol.PathEnrol, `"` + strings.Repeat("x", protocol.MaxRequestBytes) + `"`, 413},
		{http.MethodPost, protocol.PathEnrol, strings.Repeat("[", 100000), 400},
		{http.MethodGet, protocol.PathPlan + "?after=" + strings.Repeat("x", 200), "", 400},
		{http.MethodGet, protocol.PathBootstrap + "?operation=" + strings.Repeat("x", 200), "", 400},
		{http.MethodPost, protocol.PathPlan, `{}`, 405},
		{http.MethodHead, protocol.PathPlan, "", 405},
		{http.MethodDelete, protocol.PathEnrol, "", 405},
		{http.MethodGet, "/", "", 404},
		{http.MethodGet, "/v1/plan/", "", 404},
		{http.MethodGet, "/v1/../metrics", "", 404},
		{http.MethodGet, "/v1/%70lan/x", "", 404},
	} {
		var body any
		if test.body != "" {
			body = test.body
		}
		got := a.call(test.method, test.path, body)
		g.Expect(got.status).To(Equal(test.status), "%s %s %.60s: %s", test.method, test.path, test.body, got.body)
		g.Expect(got.header.Get("Content-Type")).To(Equal("application/problem+json"))
		if test.method != http.MethodHead {
			g.Expect(got.problem().Status).To(Equal(test.status))
			g.Expect(got.problem().Title).NotTo(BeEmpty())
		}
	}
	g.Expect(a.call(http.MethodPost, protocol.PathReport, nil).status).To(Equal(http.StatusUnsupportedMediaType))
	// Unknown fields of a newer agent are ignored.
	g.Expect(a.call(http.MethodPost, protocol.PathReport, `{"future":{"a":[1]},"hello":{"mood":"good","protocol":1,"agentVersion":"v9"}}`).status).
		To(Equal(http.StatusNoContent))
	g.Expect(h.host(a.name).Status.Agent.Version).To(Equal("v9"))
}

func TestProgressIsWrittenAtIntervals(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.cachedSoon(h.patch(a.name, bound("c1")))
	step := func(name string) {
		t.Helper()
		got := a.reportOperation(protocol.OperationBootstrap, "c1", protocol.StateRunning, func(op *protocol.OperationReport) { op.Step = name })
		g.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	}
	recorded := func() string {
		if op := h.host(a.name).Operation(infrav1.OperationBootstrap, "c1"); op != nil {
			return op.Step
		}
		return ""
	}
	for _, name := range []string{"a", "b", "c"} {
		step(name)
	}
	h.step(9 * time.Second)
	step("d")
	g.Expect(h.writes.take()).To(BeEmpty(), "progress is deferred for ten seconds")
	h.step(2 * time.Second)
	g.Eventually(recorded, eventually, often).Should(Equal("d"))
	for _, name := range []string{"e", "f"} {
		step(name)
	}
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost/status"}))
	h.step(11 * time.Second)
	g.Eventually(recorded, eventually, often).Should(Equal("f"))
	step("g")
	g.Expect(a.reportOperation(protocol.OperationBootstrap, "c1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent), "the end is written at once")
	g.Expect(h.host(a.name).Operation(infrav1.OperationBootstrap, "c1").State).To(Equal(infrav1.OperationSucceeded))
	h.step(11 * time.Second)
	g.Expect(h.settledWrites()).To(HaveLen(2), "the progress before the end is not written after it")
	g.Expect(h.host(a.name).Operation(infrav1.OperationBootstrap, "c1").State).To(Equal(infrav1.OperationSucceeded))
}

func TestRateOfReportsIsLimited(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	var last answer
	for range 100 {
		if last = a.report(protocol.Report{}); last.status != http.StatusNoContent {
			break
		}
	}
	g.Expect(last.status).To(Equal(http.StatusTooManyRequests))
	g.Expect(last.header.Get("Retry-After")).To(Equal("1"))
	h.step(time.Second)
	g.Expect(a.report(protocol.Report{}).status).To(Equal(http.StatusNoContent))
	g.Expect(h.writes.take()).To(BeEmpty())
}
