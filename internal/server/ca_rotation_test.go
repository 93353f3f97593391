package server_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

// rotating is the API with the reconciler of its CA.
type rotating struct {
	*WithT
	*harness
	authority  *authority.Authority
	reconciler *authority.Reconciler
	events     *events.FakeRecorder
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	r := &rotating{WithT: NewWithT(t), events: events.NewFakeRecorder(100)}
	r.harness = start(t, func(o *server.Options) { r.authority = o.Authority.(*authority.Authority) })
	r.reconciler = &authority.Reconciler{Authority: r.authority, Hosts: r.cached, Recorder: r.events, Clock: r.clock}
	return r
}

// step requests a step of a rotation and waits until it was executed.
func (r *rotating) step(step string) {
	r.tb.Helper()
	secret := &corev1.Secret{}
	r.must(r.admin.Get(context.Background(), client.ObjectKey{Namespace: r.namespace, Name: authority.SecretName}, secret))
	secret.Annotations = map[string]string{authority.RotationAnnotation: step}
	r.must(r.admin.Update(context.Background(), secret))
	r.Eventually(func() (string, error) {
		_, err := r.reconciler.Reconcile(context.Background(), ctrl.Request{})
		select {
		case event := <-r.events.Events:
			return event, err
		default:
			return "", err
		}
	}, eventually, often).Should(HavePrefix("Normal CARotated "))
}

// trust makes new connections of the agent trust only that bundle, as a host does after
// its plan has changed.
func (a *agent) trust(bundle string) *agent {
	a.h.tb.Helper()
	roots := a.h.roots
	defer func() { a.h.roots = roots }()
	a.h.roots = x509.NewCertPool()
	a.h.roots.AppendCertsFromPEM([]byte(bundle))
	again := a.h.agentWith(a.key)
	again.name = a.name
	return again
}

// answered waits for the plan of an open poll.
func (r *rotating) answered(poll <-chan answer) protocol.Plan {
	r.tb.Helper()
	var got answer
	r.Eventually(poll, eventually, often).Should(Receive(&got))
	var p protocol.Plan
	r.must(json.Unmarshal([]byte(got.body), &p))
	return p
}

// A waiting host receives both roots at once, acknowledges them, and is served without
// interruption until only the new one is trusted. A host that was disconnected refuses
// the server; the administrator was warned of that.
func TestHostsGoThroughARotation(t *testing.T) {
	r := newRotating(t)
	r.registration("edge")
	enrol := func() *agent {
		token, _ := r.token("edge")
		a := r.enrolled(token)
		r.cachedSoon(r.host(a.name))
		return a
	}
	waiting := enrol()
	before := waiting.plan("")
	poll := waiting.poll(t.Context(), before.Revision)
	r.step(authority.StepPrepare)
	both := r.answered(poll).Desired.TrustBundle
	r.Expect(strings.Count(both, "BEGIN CERTIFICATE")).To(Equal(2))
	r.Expect(both).To(HavePrefix(before.Desired.TrustBundle))

	waiting = waiting.trust(both)
	hello := enrolRequest().Hello
	hello.TrustDigest = protocol.TrustDigest(both)
	r.Expect(waiting.call(http.MethodPost, protocol.PathReport, protocol.Report{Hello: &hello}).status).To(Equal(http.StatusNoContent))
	r.Expect(r.host(waiting.name).Status.Agent.TrustDigest).To(Equal(hello.TrustDigest))
	prepared := waiting.plan("")
	poll = waiting.poll(t.Context(), prepared.Revision)
	r.step(authority.StepSwitch)
	r.stillPolling(1) // the switch changes no plan
	r.Expect(waiting.trust(both).plan("").Revision).To(Equal(prepared.Revision), "new connections meet the new CA")

	_, err := waiting.trust(before.Desired.TrustBundle).do(t.Context(), http.MethodGet, protocol.PathPlan, "", nil)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	r.Expect(unknown).To(BeTrue(), "a host with only the old root refuses the server")

	r.step(authority.StepFinish)
	last := r.answered(poll).Desired.TrustBundle
	r.Expect(before.Desired.TrustBundle + last).To(Equal(both))
	r.Expect(waiting.trust(last).plan("").Desired.TrustBundle).To(Equal(last))
}

// The administrator sees which hosts the switch waits for, also disconnected ones.
func TestRotationNamesHostsThatAreAway(t *testing.T) {
	r := newRotating(t)
	r.registration("edge")
	token, _ := r.token("edge")
	away := r.enrolled(token)
	r.cachedSoon(r.host(away.name))
	r.step(authority.StepPrepare)
	secret := &corev1.Secret{}
	r.must(r.admin.Get(t.Context(), client.ObjectKey{Namespace: r.namespace, Name: authority.SecretName}, secret))
	secret.Annotations = map[string]string{authority.RotationAnnotation: authority.StepSwitch}
	r.must(r.admin.Update(t.Context(), secret))
	result, err := r.reconciler.Reconcile(t.Context(), ctrl.Request{})
	r.must(err)
	r.Expect(result.RequeueAfter).NotTo(BeZero())
	r.Expect(<-r.events.Events).To(And(HavePrefix("Warning CARotationWaiting 1 of 1 "), ContainSubstring(away.name)))

	// The switch does not wait for a rejected host.
	r.cachedSoon(r.patch(away.name, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }))
	_, err = r.reconciler.Reconcile(t.Context(), ctrl.Request{})
	r.must(err)
	r.Expect(<-r.events.Events).To(HavePrefix("Normal CARotated "))
}
