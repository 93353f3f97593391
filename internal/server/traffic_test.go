package server_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/traffic"
	first "github.com/capi-elemental/cluster-api-provider-elemental/test/harness/traffic/testdata/v0.1.0/protocol"
)

// former is an agent of v0.1.0, whose requests were recorded. It sees answers as v0.1.0 does, with the types of that version.
type former struct {
	*WithT
	*agent
}

// replay sends the request of a recorded exchange. The answer must be of the same kind as that of v0.1.0's manager.
func (f *former) replay(name, token string) answer {
	f.h.tb.Helper()
	e := f.recorded(name)
	if _, ok := e.Request.Header["Authorization"]; !ok {
		token = ""
	}
	var body any
	if e.Request.Body != nil {
		body = string(e.Request.Body)
	}
	got, err := f.do(f.h.tb.Context(), e.Request.Method, e.Request.URL, token, body)
	f.h.must(err)
	f.Expect(got.status).To(Equal(e.Answer.Status), "%s: %s", name, got.body)
	if got.status >= http.StatusBadRequest {
		f.Expect(got.problem().Type).To(Equal(answer{body: string(e.Answer.Body)}.problem().Type), name)
	}
	return got
}

func (f *former) recorded(name string) traffic.Exchange {
	f.h.tb.Helper()
	e, err := traffic.Read(name)
	f.h.must(err)
	f.home = e.Request.Header[first.HeaderHome]
	return e
}

// enrols replays an enrolment.
func (f *former) enrols(name, token string) first.EnrolResponse {
	f.h.tb.Helper()
	var response first.EnrolResponse
	f.h.must(json.Unmarshal([]byte(f.replay(name, token).body), &response))
	f.name, f.id = response.Name, response.HostID
	f.h.cachedSoon(f.h.host(f.name))
	return response
}

// polls replays a poll that was answered with a plan.
func (f *former) polls(name string) first.Plan {
	f.h.tb.Helper()
	var p first.Plan
	f.h.must(json.Unmarshal([]byte(f.replay(name, "").body), &p))
	return p
}

// reports replays a report and returns the state of the operation that it is about.
func (f *former) reports(name string) infrav1.OperationState {
	f.h.tb.Helper()
	var sent first.Report
	f.h.must(json.Unmarshal(f.recorded(name).Request.Body, &sent))
	f.replay(name, "")
	op := sent.Operations[0]
	return f.h.host(f.name).Operation(infrav1.OperationType(op.Type), op.ID).State
}

// bound binds the host to the claim whose operation v0.1.0's manager had in a recorded plan, or its agent in a report.
func (f *former) bound(machine, id string) {
	f.h.tb.Helper()
	c := f.h.chain(f.name, machine)
	c.claim.ID, c.elementalMachine.Spec.HostRef.ClaimID = id, id
	c.create(f.h)
}

// The life of a host with an agent of v0.1.0: this manager understands each of its requests.
func TestAgentOfTheFirstRelease(t *testing.T) {
	h := start(t)
	f := &former{WithT: NewWithT(t), agent: h.agent()}
	h.registration("edge")
	token, _ := h.token("edge")
	f.replay("plan-unknown-host", "")
	f.replay("enrol-refused", "wrong")

	f.Expect(f.enrols("enrol", token).Approved).To(BeTrue())
	var enrolled first.EnrolRequest
	h.must(json.Unmarshal(f.recorded("enrol").Request.Body, &enrolled))
	status := h.host(f.name).Status
	f.Expect(status.Agent.Version).To(Equal(enrolled.Hello.AgentVersion))
	f.Expect(status.Agent.Capabilities).To(HaveLen(len(enrolled.Hello.Capabilities)))
	f.Expect(status.Inventory.Architecture).To(Equal(enrolled.Inventory.Architecture))
	f.Expect(status.Inventory.MemoryBytes).To(Equal(enrolled.Inventory.MemoryBytes))
	f.Expect(status.Inventory.Disks).To(HaveLen(len(enrolled.Inventory.Disks)))
	f.Expect(status.Addresses).To(HaveLen(len(enrolled.Addresses)))
	f.Expect(f.polls("plan-idle").Operation).To(BeNil())
	f.replay("report-hello", "")

	var recorded first.Plan
	h.must(json.Unmarshal(f.recorded("plan-bootstrap").Answer.Body, &recorded))
	f.bound("m1", recorded.Operation.ID)
	f.Expect(f.polls("plan-bootstrap").Operation).To(Equal(&first.Operation{
		Type: first.OperationBootstrap, ID: recorded.Operation.ID, ClusterName: "c", MachineName: "m1",
	}))
	f.Expect(f.replay("bootstrap", "").body).To(Equal("#cloud-config of m1"))
	f.Expect(f.reports("report-succeeded")).To(Equal(infrav1.OperationSucceeded))
	f.replay("bootstrap-refused", "")

	f.sendsLog()

	h.cachedSoon(h.patch(f.name, releasing))
	reset := f.polls("plan-reset").Operation
	f.Expect(*reset).To(And(HaveField("Type", first.OperationReset), HaveField("ID", recorded.Operation.ID)))
	f.Expect(f.reports("report-reset")).To(Equal(infrav1.OperationSucceeded))
	f.leaves()
}

// sendsLog replays the answer to a request for a log.
func (f *former) sendsLog() {
	f.h.tb.Helper()
	until := metav1.NewTime(f.h.clock.Now().Add(time.Hour).Truncate(time.Second))
	f.h.cachedSoon(f.h.patch(f.name, func(h *infrav1.ElementalHost) {
		h.Spec.LogRequest = &infrav1.HostLogRequest{ID: "log-1", Operation: infrav1.OperationBootstrap, Until: until}
	}))
	f.Expect(f.polls("plan-log").Desired.Log).To(Equal(&first.LogRequest{ID: "log-1", Operation: first.OperationBootstrap}))
	var sent first.HostLog
	f.h.must(json.Unmarshal(f.recorded("log").Request.Body, &sent))
	f.replay("log", "")
	host, secret := f.h.host(f.name), &corev1.Secret{}
	f.Expect(*host.Status.Log).To(And(HaveField("ID", "log-1"), HaveField("OperationID", sent.OperationID)))
	f.h.must(f.h.admin.Get(f.h.tb.Context(), client.ObjectKey{Namespace: f.h.namespace, Name: host.Status.Log.SecretName}, secret))
	f.Expect(secret.Data["log"]).To(And(Not(BeEmpty()), Equal(sent.Text)))
}

// leaves replays the polls of a host that was locked, rejected and deleted.
func (f *former) leaves() {
	f.h.tb.Helper()
	f.h.cachedSoon(f.h.patch(f.name, func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} }))
	f.replay("plan-locked", "")
	f.h.cachedSoon(f.h.patch(f.name, func(h *infrav1.ElementalHost) { h.Spec.Lock, h.Spec.Approval = nil, infrav1.ApprovalRejected }))
	f.replay("plan-revoked", "")
	f.deleteHost()
	f.replay("plan-unknown-host", "")
}

// A host of v0.1.0 that nobody has approved yet gets no operation.
func TestPendingAgentOfTheFirstRelease(t *testing.T) {
	h := start(t)
	f := &former{WithT: NewWithT(t), agent: h.agent()}
	h.registration("manual", func(r *infrav1.ElementalRegistration) { r.Spec.Approval = infrav1.ApprovalManual })
	token, _ := h.token("manual")
	f.Expect(f.enrols("enrol-pending", token).Approved).To(BeFalse())
	f.Expect(h.host(f.name).Spec.Approval).To(Equal(infrav1.ApprovalPending))
	f.Expect(f.polls("plan-pending").Operation).To(BeNil())
}

// The progress and the failure of a bootstrap that an agent of v0.1.0 reports.
func TestFailureAtTheFirstRelease(t *testing.T) {
	h := start(t)
	f := &former{WithT: NewWithT(t), agent: h.agent()}
	h.registration("edge")
	token, _ := h.token("edge")
	f.enrols("enrol", token)
	var sent first.Report
	h.must(json.Unmarshal(f.recorded("report-failed").Request.Body, &sent))
	f.bound("m1", sent.Operations[0].ID)
	f.replay("report-running", "")
	h.step(11 * time.Second) // progress is written at intervals
	f.Eventually(func() []infrav1.HostOperation { return h.host(f.name).Status.Operations }, eventually, often).Should(ContainElement(And(
		HaveField("State", infrav1.OperationRunning), HaveField("Step", "waiting, as was asked for"))))
	f.Expect(f.reports("report-failed")).To(Equal(infrav1.OperationFailed))
	f.Expect(h.host(f.name).Status.Operations).To(ContainElement(HaveField("Message", sent.Operations[0].Message)))
}
