package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// logs is the API with hosts that keep logs.
type logs struct {
	*WithT
	*harness

	token string
}

func newLogs(t *testing.T) *logs {
	t.Helper()
	l := &logs{WithT: NewWithT(t), harness: start(t)}
	l.token = l.fleet()
	return l
}

// keeper returns the agent of an approved host that keeps logs.
func (l *logs) keeper() *agent {
	l.tb.Helper()
	a := l.enrolled(l.token)
	hello := enrolRequest().Hello
	hello.Capabilities = append(hello.Capabilities, protocol.CapabilityLogs)
	got := a.report(protocol.Report{Hello: &hello})
	l.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	l.cachedSoon(l.host(a.name))
	return a
}

// ask requests the log of the last bootstrap.
func (l *logs) ask(a *agent, id string) {
	l.tb.Helper()
	until := metav1.NewTime(l.clock.Now().Add(time.Hour).Truncate(time.Second))
	l.cachedSoon(l.patch(a.name, func(h *infrav1.ElementalHost) {
		h.Spec.LogRequest = &infrav1.HostLogRequest{ID: id, Operation: infrav1.OperationBootstrap, Until: until}
	}))
}

func (l *logs) send(a *agent, id, text string, change ...func(*protocol.HostLog)) answer {
	l.tb.Helper()
	log := protocol.HostLog{
		Operation: protocol.OperationBootstrap, OperationID: "c1", State: protocol.StateFailed, Text: []byte(text), Redactions: 2, CutBytes: 7,
	}
	for _, f := range change {
		f(&log)
	}
	return a.call(http.MethodPost, protocol.PathLog+"?request="+id, log)
}

// secret returns the Secret with the log of the host, or nil.
func (l *logs) secret(a *agent) *corev1.Secret {
	l.tb.Helper()
	secret := &corev1.Secret{}
	err := l.admin.Get(l.tb.Context(), client.ObjectKey{Namespace: l.namespace, Name: infrav1.LogSecretName(l.host(a.name))}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	l.must(err)
	return secret
}

// The plan asks, the host answers, and a Secret of the host has the log for an hour.
func TestLogOfAHost(t *testing.T) {
	l := newLogs(t)
	a := l.keeper()
	l.Expect(a.plan("").Desired.Log).To(BeNil())
	l.ask(a, "r1")
	l.Expect(a.plan("").Desired.Log).To(Equal(&protocol.LogRequest{ID: "r1", Operation: protocol.OperationBootstrap}))
	got := l.send(a, "r1", "kubeadm failed\n")
	l.Expect(got.status).To(Equal(http.StatusNoContent), got.body)

	host, expires := l.host(a.name), metav1.NewTime(l.clock.Now().Add(time.Hour).Truncate(time.Second))
	l.Expect(host.Spec.LogRequest).To(BeNil())
	l.Expect(host.Status.Log.ExpiresAt.Equal(&expires)).To(BeTrue())
	l.Expect(*host.Status.Log).To(And(
		HaveField("ID", "r1"), HaveField("OperationID", "c1"), HaveField("State", infrav1.OperationFailed), HaveField("SecretName", a.name+"-log"),
		HaveField("Redactions", int32(2)), HaveField("CutBytes", int64(7))))
	secret := l.secret(a)
	l.Expect(secret.Type).To(BeEquivalentTo("infrastructure.cluster.x-k8s.io/elemental-host-log"))
	l.Expect(secret.Labels).To(HaveKeyWithValue(infrav1.HostLogLabel, "true"))
	l.Expect(metav1.IsControlledBy(secret, host)).To(BeTrue(), "garbage collection removes it with the host")
	l.Expect(secret.Annotations).To(HaveKeyWithValue(infrav1.LogExpiresAnnotation, expires.UTC().Format(time.RFC3339)))
	l.Expect(string(secret.Data["log"])).To(Equal("kubeadm failed\n"))
	l.Expect(l.events()).To(ContainElement(ContainSubstring("LogReceived The log of Bootstrap c1 is in Secret " + a.name + "-log until")))
	l.cachedSoon(host)
	l.Expect(a.plan("").Desired.Log).To(BeNil())

	l.ask(a, "r2")
	l.Expect(l.send(a, "r2", "later\n").status).To(Equal(http.StatusNoContent))
	l.Expect(string(l.secret(a).Data["log"])).To(Equal("later\n"), "a host has one log")
}

// A host without a log of the operation says so, and there is no Secret.
func TestNoLog(t *testing.T) {
	l := newLogs(t)
	a := l.keeper()
	l.ask(a, "r1")
	got := l.send(a, "r1", "", func(log *protocol.HostLog) { log.OperationID, log.State = "", "" })
	l.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	l.Expect(l.host(a.name).Status.Log).To(And(HaveField("ID", "r1"), HaveField("SecretName", ""), HaveField("OperationID", "")))
	l.Expect(l.secret(a)).To(BeNil())
}

// The manager takes only the log that this host was asked for now. It does not read the body of any
// other answer.
func TestThreat87_UnaskedLogs(t *testing.T) {
	l := newLogs(t)
	asked, other := l.keeper(), l.keeper()
	l.ask(asked, "r1")
	for name, got := range map[string]answer{
		"unasked":           l.send(other, "r9", "x"),
		"for another host":  l.send(other, "r1", "x"),
		"another request":   l.send(asked, "r2", "x"),
		"without a request": l.send(asked, "", "x"),
		"another operation": l.send(asked, "r1", "x", func(log *protocol.HostLog) { log.Operation = protocol.OperationReset }),
		"no JSON":           asked.call(http.MethodPost, protocol.PathLog+"?request=r1", "x"),
	} {
		l.Expect(got.status).To(BeElementOf(http.StatusNotFound, http.StatusBadRequest), name)
	}
	l.patch(asked.name, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} })
	l.Expect(l.send(asked, "r1", "x").status).To(Equal(http.StatusForbidden), "fenced")
	l.cachedSoon(l.patch(asked.name, func(h *infrav1.ElementalHost) { h.Spec.Fence = nil }))
	l.step(time.Hour)
	l.Expect(l.send(asked, "r1", "x").status).To(Equal(http.StatusNotFound), "the request has ended")
	for _, a := range []*agent{asked, other} {
		l.Expect(l.secret(a)).To(BeNil())
		l.Expect(l.host(a.name).Status.Log).To(BeNil())
	}
}

// The first log of a request stays: a host does not fill etcd by answering again and again, and
// an answer that got lost may be repeated. So it goes on whatever step the former leader reached.
func TestThreat87_LogsAreWrittenOnce(t *testing.T) {
	l := newLogs(t)
	a := l.keeper()
	l.ask(a, "r1")
	l.Expect(l.send(a, "r1", "first").status).To(Equal(http.StatusNoContent))
	described := *l.host(a.name).Status.Log
	l.ask(a, "r1") // as if the request had not been removed
	l.step(time.Minute)
	l.writes.take()
	l.Expect(l.send(a, "r1", "second").status).To(Equal(http.StatusNoContent))
	l.Expect(string(l.secret(a).Data["log"])).To(Equal("first"))
	l.Expect(*l.host(a.name).Status.Log).To(Equal(described), "it does not live longer either")
	l.Expect(l.host(a.name).Spec.LogRequest).To(BeNil())
	l.Expect(l.send(a, "r1", "third").status).To(Equal(http.StatusNotFound))

	l.must(l.admin.Delete(t.Context(), l.secret(a)))
	l.ask(a, "r1") // as if the Secret had not been written
	l.Expect(l.send(a, "r1", "first").status).To(Equal(http.StatusNoContent))
	l.Expect(string(l.secret(a).Data["log"])).To(Equal("first"))
}

// A log has at most 1 MiB, and nothing that a terminal would take for a command.
func TestThreat87_LogsAreBoundedAndPrintable(t *testing.T) {
	l := newLogs(t)
	a := l.keeper()
	l.ask(a, "r1")
	l.Expect(l.send(a, "r1", strings.Repeat("x", 2<<20)).status).To(Equal(http.StatusRequestEntityTooLarge))
	l.Expect(l.secret(a)).To(BeNil())
	got := l.send(a, "r1", "\x1b]0;title\x07é\xff\tb\n"+strings.Repeat("x", protocol.MaxLogBytes-20), func(log *protocol.HostLog) {
		log.OperationID, log.State, log.Redactions, log.CutBytes = strings.Repeat("é", 100), "Odd", -1, -1
	})
	l.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	l.Expect(string(l.secret(a).Data["log"])).To(HavePrefix("]0;titleé\tb\nxxx"))
	log := l.host(a.name).Status.Log
	l.Expect(*log).To(And(HaveField("State", BeEmpty()), HaveField("Redactions", int32(0)), HaveField("CutBytes", int64(0))))
	l.Expect(len(log.OperationID)).To(BeNumerically("<=", 63))
}

// A Secret of somebody else is not replaced.
func TestThreat87_OtherSecretsStay(t *testing.T) {
	l := newLogs(t)
	a := l.keeper()
	name := infrav1.LogSecretName(l.host(a.name))
	l.must(l.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}, StringData: map[string]string{"log": "mine"}}))
	l.ask(a, "r1")
	got := l.send(a, "r1", "x")
	l.Expect(got.status).To(Equal(http.StatusConflict), got.body)
	l.Expect(got.problem().Detail).To(ContainSubstring(name))
	l.Expect(string(l.secret(a).Data["log"])).To(Equal("mine"))
}

// A namespace has a bounded number of logs. A host that has one may replace it.
func TestThreat87_LogsOfANamespace(t *testing.T) {
	l := newLogs(t)
	a := l.keeper()
	for i := range 32 {
		h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-", Namespace: l.namespace}}
		l.must(l.admin.Create(t.Context(), h))
		h.Status.Log = &infrav1.HostLog{ID: "1", Operation: infrav1.OperationReset, ExpiresAt: metav1.NewTime(l.clock.Now().Add(time.Hour))}
		l.must(l.admin.Status().Update(t.Context(), h))
		if i == 31 {
			l.cachedSoon(h)
		}
	}
	l.ask(a, "r1")
	got := l.send(a, "r1", "x")
	l.Expect(got.status).To(Equal(http.StatusServiceUnavailable), got.body)
	l.Expect(l.secret(a)).To(BeNil())
	var some infrav1.ElementalHostList
	l.must(l.admin.List(t.Context(), &some, client.InNamespace(l.namespace)))
	for i := range some.Items {
		if some.Items[i].Status.Log != nil {
			l.must(l.admin.Delete(t.Context(), &some.Items[i]))
			break
		}
	}
	l.Eventually(func() int { return l.send(a, "r1", "x").status }, eventually, time.Second).Should(Equal(http.StatusNoContent))
}
