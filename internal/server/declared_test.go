package server_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// declare creates a declared host and waits until it is in the cache.
func (h *harness) declare(name string, match infrav1.IdentityMatch, change ...func(*infrav1.ElementalHost)) {
	h.tb.Helper()
	host := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name, Labels: map[string]string{"rack": "7"}},
		Spec:       infrav1.ElementalHostSpec{Identity: &infrav1.HostIdentity{Match: &match}},
	}
	for _, f := range change {
		f(host)
	}
	h.must(h.admin.Create(context.Background(), host))
	h.cachedSoon(host)
}

func withSerial(serial string) protocol.EnrolRequest {
	request := enrolRequest()
	request.Inventory.SMBIOS.SerialNumber = serial
	return request
}

func (h *harness) hosts() []infrav1.ElementalHost {
	h.tb.Helper()
	var hosts infrav1.ElementalHostList
	h.must(h.admin.List(context.Background(), &hosts, client.InNamespace(h.namespace)))
	return hosts.Items
}

func approved(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalApproved }

func TestHostDeclaredByKey(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	a, b, twice, rejected := h.agent(), h.agent(), h.agent(), h.agent()
	h.declare("a", infrav1.IdentityMatch{KeyFingerprint: a.fingerprint}, approved, func(host *infrav1.ElementalHost) { host.Spec.HostID = "mine" })
	h.declare("b", infrav1.IdentityMatch{KeyFingerprint: b.fingerprint})
	h.declare("t1", infrav1.IdentityMatch{KeyFingerprint: twice.fingerprint}, approved)
	h.declare("t2", infrav1.IdentityMatch{KeyFingerprint: twice.fingerprint}, approved)
	h.declare("r", infrav1.IdentityMatch{KeyFingerprint: rejected.fingerprint}, func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected })
	h.writes.take()
	for one, invited := range map[*agent]bool{a: true, b: true, twice: false, rejected: false, h.agent(): false} {
		refused := one.plan404().problem()
		g.Expect(refused.Type).To(Equal(protocol.ProblemUnknownHost))
		g.Expect(refused.Enrol).To(Equal(invited))
	}

	for range 2 {
		g.Expect(a.enrol("").status).To(Equal(http.StatusOK))
	}
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost", "patch ElementalHost/status"}))
	g.Expect([]string{a.name, a.id}).To(Equal([]string{"a", "mine"}))
	host := h.host("a")
	g.Expect(host.Spec.Identity.KeyFingerprint).To(Equal(a.fingerprint))
	g.Expect(host.Spec.Identity.Generation).To(BeEquivalentTo(1))
	g.Expect(host.Labels).To(Equal(map[string]string{"rack": "7"}))
	g.Expect(host.Status.Inventory).NotTo(BeNil())
	a.plan("")

	g.Expect(b.enrol("").body).To(ContainSubstring(`"approved":false`))
	g.Expect(b.id).NotTo(BeEmpty())
	for _, refused := range []*agent{twice, rejected} {
		g.Expect(refused.enrol("").problem().Type).To(Equal(protocol.ProblemTokenRefused))
	}
	g.Expect(h.logs.text()).To(And(ContainSubstring("SeveralHostsDeclareTheKey"), ContainSubstring("DeclaredHostIsShutOut"), ContainSubstring(`"decision":"Bound"`)))
	g.Expect(h.hosts()).To(HaveLen(5))
}

func TestHostDeclaredByKeyIsApprovedByItsRegistration(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	a := h.agent()
	h.declare("a", infrav1.IdentityMatch{KeyFingerprint: a.fingerprint}, func(host *infrav1.ElementalHost) {
		host.Spec.RegistrationRef = &infrav1.LocalReference{Name: "edge"}
	})
	g.Expect(a.enrol("").body).To(ContainSubstring(`"approved":true`))
}

// Any token of the namespace lets a machine become a host that is declared by serial
// number. Only the token of the host's own registration approves it.
func TestThreat47_TokenOfAnotherRegistration(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	for name, approval := range map[string]infrav1.ApprovalPolicy{
		"kiosks": infrav1.ApprovalAutomatic, "control-planes": infrav1.ApprovalManual, "workers": infrav1.ApprovalAutomatic,
	} {
		h.registration(name, func(r *infrav1.ElementalRegistration) { r.Spec.Approval = approval })
	}
	kiosk, _ := h.token("kiosks", func(t *enrolment.Token) { t.MaxUses = 10 })
	for _, registration := range []string{"control-planes", "workers"} {
		serial := "SN-" + registration
		h.declare(registration+"-1", infrav1.IdentityMatch{SerialNumber: serial}, func(host *infrav1.ElementalHost) {
			host.Spec.RegistrationRef = &infrav1.LocalReference{Name: registration}
		})
		a := h.agent()
		g.Expect(a.enrolAs(kiosk, withSerial(serial)).body).To(ContainSubstring(`"approved":false`), registration)
		g.Expect(h.host(registration + "-1").Spec.Approval).To(Equal(infrav1.ApprovalPending))
	}
	worker, _ := h.token("workers")
	h.declare("workers-2", infrav1.IdentityMatch{SerialNumber: "SN-2"}, func(host *infrav1.ElementalHost) {
		host.Spec.RegistrationRef = &infrav1.LocalReference{Name: "workers"}
	})
	g.Expect(h.agent().enrolAs(worker, withSerial("SN-2")).body).To(ContainSubstring(`"approved":true`))
}

func TestHostDeclaredBySerial(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", func(r *infrav1.ElementalRegistration) { r.Spec.Approval = infrav1.ApprovalManual })
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 100 })
	h.declare("one", infrav1.IdentityMatch{SerialNumber: "SN-1"}, approved)
	h.declare("none", infrav1.IdentityMatch{SerialNumber: "To be filled by O.E.M."}, approved)
	a := h.agent()
	g.Expect(a.enrolAs("", withSerial("SN-1")).problem().Type).To(Equal(protocol.ProblemTokenRefused), "a serial number proves nothing")
	h.writes.take()
	g.Expect(a.enrolAs(token, withSerial(" SN-1 ")).body).To(ContainSubstring(`"approved":true`))
	g.Expect(h.writes.take()).To(Equal([]string{"patch Secret", "patch ElementalHost", "patch ElementalHost/status"}))
	g.Expect(a.name).To(Equal("one"))
	g.Expect(h.host("one").Spec.RegistrationRef.Name).To(Equal("edge"))

	placeholder := h.agent()
	g.Expect(placeholder.enrolAs(token, withSerial("To Be Filled By O.E.M.")).body).To(ContainSubstring(`"approved":false`))
	g.Expect(placeholder.name).NotTo(Equal("none"))
	g.Expect(h.host(placeholder.name).Spec.PendingReason).To(BeEmpty())

	// The board is replaced: an administrator clears the key once.
	h.cachedSoon(h.patch("one", func(host *infrav1.ElementalHost) { host.Spec.Identity.KeyFingerprint = "" }))
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	again := h.agent()
	request := withSerial("SN-1")
	request.Inventory.CPU.Cores = 99
	g.Expect(again.enrolAs(token, request).status).To(Equal(http.StatusOK))
	g.Expect([]string{again.name, again.id}).To(Equal([]string{"one", a.id}))
	g.Expect(h.host("one").Spec.Identity.Generation).To(BeEquivalentTo(2))
	g.Expect(h.host("one").Status.Inventory.CPU.Cores).To(BeEquivalentTo(99))
}

func (a *agent) plan404() answer {
	a.h.tb.Helper()
	return a.call(http.MethodGet, protocol.PathPlan, nil)
}

// Several machines report the same serial number, and another one was declared for several
// hosts.
func TestAmbiguousHardware(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	const machines = 6
	token, secret := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 100 })
	h.declare("one", infrav1.IdentityMatch{SerialNumber: "SN-1"}, approved)
	h.declare("two-a", infrav1.IdentityMatch{SerialNumber: "SN-2"}, approved)
	h.declare("two-b", infrav1.IdentityMatch{SerialNumber: "SN-2"}, approved)
	var group sync.WaitGroup
	for range machines {
		a := h.agent()
		group.Go(func() {
			_, _ = a.do(context.Background(), http.MethodPost, protocol.PathEnrol, token, withSerial("SN-1"))
		})
	}
	group.Wait()
	a := h.agent()
	g.Expect(a.enrolAs(token, withSerial("SN-2")).body).To(ContainSubstring(`"approved":false`))
	ambiguous := 0
	for _, host := range h.hosts() {
		if host.Spec.PendingReason == infrav1.PendingAmbiguous {
			ambiguous++
			g.Expect(host.Spec.Approval).To(Equal(infrav1.ApprovalPending))
		}
	}
	g.Expect(ambiguous).To(Equal(machines)) // all but the one that was bound
	g.Expect(h.host("one").Spec.Identity.KeyFingerprint).NotTo(BeEmpty())
	g.Expect(h.host("two-a").Spec.Identity.KeyFingerprint).To(BeEmpty())
	g.Expect(h.host("two-b").Spec.Identity.KeyFingerprint).To(BeEmpty())
	h.must(h.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	g.Expect(string(secret.Data[enrolment.UsedKey])).To(Equal("7"), "each machine used the token once")
}

// A host that is bound again and rotates its key is not locked.
func TestReboundHostRotates(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.step(2 * time.Minute)
	first, second := h.agent(), h.agent()
	h.declare("a", infrav1.IdentityMatch{KeyFingerprint: second.fingerprint}, approved, func(host *infrav1.ElementalHost) {
		host.Spec.Identity.FormerKeyFingerprint = first.fingerprint
		host.Spec.Identity.Generation = 4
	})
	g.Expect(second.enrol("").body).To(ContainSubstring(`"generation":5`))
	g.Expect(first.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost), "the key of a deleted host is unknown")
	third := h.agent()
	g.Expect(second.rotate(third, 5).status).To(Equal(http.StatusNoContent))
	third.plan("")
	g.Expect(h.host("a").Spec.Lock).To(BeNil())
	g.Expect(h.host("a").Spec.Identity.Generation).To(BeEquivalentTo(6))
}
