package registration_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// host creates a connected host of the registration, whose agent follows.
func (f *fixture) host(name string, change func(*infrav1.ElementalHost)) {
	f.t.Helper()
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name}}
	h.Spec.RegistrationRef = &infrav1.LocalReference{Name: f.key.Name}
	change(h)
	status := h.Status.DeepCopy()
	f.Expect(f.client.Create(f.t.Context(), h)).To(Succeed())
	h.Status = *status
	h.Status.Agent = &infrav1.HostAgent{Version: "v1", Capabilities: []string{"Follow"}}
	h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: metav1.Now()}
	if name == "old" {
		h.Status.Agent.Capabilities = nil
	}
	if name == "off" {
		h.Status.Connection.State = infrav1.ConnectionDisconnected
	}
	f.Expect(f.client.Status().Update(f.t.Context(), h)).To(Succeed())
}

// Before a move, a person sees which hosts would stay behind, and why.
func TestHostsThatReachTheSuccessor(t *testing.T) {
	successor := &infrav1.RegistrationSuccessor{URLs: []string{"https://next.example.com/"}, TrustBundle: bundle}
	f := newFixture(t, func(r *infrav1.ElementalRegistration) { r.Spec.Successor = successor })
	digest := plan.Successor(successor).Digest()
	says := func(reached bool, message string) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Successor = &infrav1.HostSuccessor{Digest: digest, Reached: &reached, Message: message}
		}
	}
	condition := func() *metav1.Condition {
		return meta.FindStatusCondition(f.get().Status.Conditions, infrav1.SuccessorReachedCondition)
	}
	nothing := func(*infrav1.ElementalHost) {}
	f.host("a", says(true, ""))
	f.host("blocked", says(false, "connection refused"))
	f.host("new", nothing)
	f.host("off", nothing)
	f.host("old", nothing)
	f.host("other", func(h *infrav1.ElementalHost) { h.Spec.RegistrationRef.Name = "other" })
	f.host("outdated", func(h *infrav1.ElementalHost) {
		says(true, "")(h)
		h.Status.Successor.Digest = "0123456789abcdef"
	})
	f.host("z", nothing)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(10 * time.Second))
	f.Expect(condition()).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", infrav1.HostsNotReachedReason)))
	f.Expect(condition().Message).To(Equal("1 of 7 hosts know the successor and have reached it; not: blocked (connection refused), " +
		"new (has not tried yet), off (is not connected), old (its agent is too old; set spec.agent), outdated (has not tried yet) and 1 more"))
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")

	for _, name := range []string{"blocked", "new", "off", "old", "outdated", "z"} {
		h := &infrav1.ElementalHost{}
		f.Expect(f.client.Get(t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: name}, h)).To(Succeed())
		says(true, "")(h)
		f.Expect(f.client.Status().Update(t.Context(), h)).To(Succeed())
	}
	f.reconcile()
	f.Expect(condition()).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", infrav1.HostsReachedReason),
		HaveField("Message", "7 of 7 hosts know the successor and have reached it")))

	// After the move, the registration is where its successor is.
	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Endpoint.URL = "https://next.example.com" })
	f.Expect(f.reconcile().RequeueAfter).To(BeNumerically(">", time.Hour))
	f.Expect(condition()).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", infrav1.SameManagementClusterReason)))
	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Successor = nil })
	f.reconcile()
	f.Expect(condition()).To(BeNil())
}

// A granted host is where it was granted to.
func TestGrantedHostReachesTheSuccessor(t *testing.T) {
	successor := &infrav1.RegistrationSuccessor{URLs: []string{"https://next.example.com"}, TrustBundle: bundle}
	f := newFixture(t, func(r *infrav1.ElementalRegistration) { r.Spec.Successor = successor })
	tenant := env.Namespace(t)
	f.host("pool", func(h *infrav1.ElementalHost) {
		h.Spec.GrantedTo = &infrav1.HostGrantedTo{Namespace: tenant, Name: "granted", GrantName: "g", Phase: infrav1.HostGrantGranted}
	})
	f.reconcile()
	message := func() string {
		return meta.FindStatusCondition(f.get().Status.Conditions, infrav1.SuccessorReachedCondition).Message
	}
	f.Expect(message()).To(Equal("0 of 1 hosts know the successor and have reached it; not: granted (is not connected)"))
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "granted"}}
	h.Spec.GrantedFrom = &infrav1.HostGrantedFrom{Namespace: f.key.Namespace, Name: "pool"}
	f.Expect(f.client.Create(t.Context(), h)).To(Succeed())
	h.Status.Successor = &infrav1.HostSuccessor{Digest: plan.Successor(successor).Digest(), Reached: new(true)}
	f.Expect(f.client.Status().Update(t.Context(), h)).To(Succeed())
	f.reconcile()
	f.Expect(message()).To(Equal("1 of 1 hosts know the successor and have reached it"))
}
