package server_test

import (
	"context"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// setPhase writes the phase of a host's grant to another namespace, as the controller of grants does.
func (h *harness) setPhase(name, namespace string, phase infrav1.HostGrantPhase) {
	h.tb.Helper()
	host := h.host(name)
	before := host.DeepCopy()
	host.Spec.GrantedTo = &infrav1.HostGrantedTo{GrantName: "g", Namespace: namespace, Name: name, Phase: phase}
	h.must(h.admin.Patch(context.Background(), host, client.MergeFrom(before)))
	h.cachedSoon(host)
}

// A host polls with the same key before and after its object has moved, without an enrolment, and
// is exactly one of the two objects at each moment, also after a restore, which keeps no status.
func TestThreat96_OneOfTwoObjectsHasTheKey(t *testing.T) {
	g := NewWithT(t)
	h, tenant := startWithThief(t)
	token, _ := h.token("edge")
	a := h.enrolled(token)
	a.home = h.namespace + "/" + a.name
	own := h.host(a.name)
	// They name the pool's object, which does not name them. They are several, because a manager without the rule would
	// take any of the objects.
	pretender := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "a"},
		Spec: infrav1.ElementalHostSpec{
			HostID: own.Spec.HostID, Identity: own.Spec.Identity, Approval: infrav1.ApprovalApproved,
			GrantedFrom: &infrav1.HostGrantedFrom{Namespace: h.namespace, Name: a.name},
		},
	}
	granted := pretender.DeepCopy()
	granted.Name = a.name
	pretenders := []*infrav1.ElementalHost{pretender}
	for _, name := range []string{"b", "y", "z"} {
		other := pretender.DeepCopy()
		other.Name = name
		pretenders = append(pretenders, other)
	}
	for _, host := range append(pretenders, granted) {
		h.must(h.admin.Create(t.Context(), host))
		h.cachedSoon(host)
	}
	proved := func(host *infrav1.ElementalHost) func() string {
		return func() string {
			h.must(h.admin.Get(context.Background(), client.ObjectKeyFromObject(host), host))
			return host.Status.KeyFingerprint
		}
	}
	h.setPhase(a.name, tenant, infrav1.HostGrantMoving)
	g.Expect(a.planOf("boot-1").status).To(Equal(http.StatusOK))
	g.Expect(proved(granted)()).To(BeEmpty(), "the pool has the key still")

	h.setPhase(a.name, tenant, infrav1.HostGrantGranted)
	g.Eventually(func() int { return a.planOf("boot-1").status }, eventually, often).Should(Equal(http.StatusOK))
	g.Eventually(proved(granted), eventually, often).Should(Equal(a.fingerprint))
	for _, host := range pretenders {
		g.Expect(proved(host)()).To(BeEmpty(), host.Name)
	}
	h.forgetStatus(granted)
	g.Expect(a.planOf("boot-1").status).To(Equal(http.StatusOK), "the pool's object leads to it after a restore")
	g.Eventually(proved(granted), eventually, often).Should(Equal(a.fingerprint))
	g.Expect(a.enrol(token).body).To(ContainSubstring(`"namespace":"`+h.namespace+`"`), "its home stays the pool")

	h.setPhase(a.name, tenant, infrav1.HostGrantReturning)
	g.Expect(a.planOf("boot-1").status).To(Equal(http.StatusOK))
	g.Eventually(proved(h.host(a.name)), eventually, often).Should(Equal(a.fingerprint))
	for _, host := range pretenders {
		g.Expect(proved(host)()).To(BeEmpty(), host.Name)
	}
}
