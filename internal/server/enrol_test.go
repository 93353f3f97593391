package server_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestEnrolmentIsThreeWrites(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", func(r *infrav1.ElementalRegistration) {
		r.Spec.HostTemplate = infrav1.HostTemplate{
			Labels: map[string]string{"site": "north"}, Annotations: map[string]string{"note": "x"},
			NamePattern: "edge-{{ .Inventory.SMBIOS.SerialNumber }}",
		}
	})
	token, secret := h.token("edge")
	a := h.enrolled(token)
	g.Expect(h.writes.take()).To(Equal([]string{"patch Secret", "create ElementalHost", "patch ElementalHost/status"}))
	g.Expect(a.name).To(Equal("edge-sn-1"))

	host := h.host(a.name)
	g.Expect(host.Spec.HostID).To(Equal(a.id))
	g.Expect(host.Spec.Identity).To(Equal(&infrav1.HostIdentity{KeyFingerprint: a.fingerprint, Generation: 1}))
	g.Expect(host.Spec.Approval).To(Equal(infrav1.ApprovalApproved))
	g.Expect(host.Labels).To(Equal(map[string]string{"site": "north", infrav1.RegistrationLabel: "edge"}))
	g.Expect(host.Annotations).To(Equal(map[string]string{"note": "x"}))
	g.Expect(host.Status.Inventory.CPU.Cores).To(BeEquivalentTo(4))
	g.Expect(host.Status.Addresses).To(HaveLen(1))
	g.Expect(host.Status.Agent.Capabilities).To(ConsistOf("Bootstrap", "Reset"))
	g.Expect(host.Status.Connection.State).To(Equal(infrav1.ConnectionConnected))
	for _, condition := range []string{"Ready", "Connected", "Approved", "Clean", "Available"} {
		g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, condition)).To(BeTrue(), condition)
	}
	again := host.DeepCopy()
	hoststatus.Update(again, metav1.Now())
	g.Expect(again.Status).To(Equal(host.Status), "the first status is complete")

	g.Expect(h.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(string(secret.Data[enrolment.UsedKey])).To(Equal("1"))
	g.Expect(secret.Data).NotTo(HaveKey(enrolment.ConfigKey), "a used-up token is kept as a hash only")

	// The key enrols again with a token that is used up: same answer, no write.
	id := a.id
	g.Expect(a.enrol(token).status).To(Equal(http.StatusOK))
	g.Expect(a.id).To(Equal(id))
	g.Expect(a.enrol("").status).To(Equal(http.StatusOK))
	a.plan("") // the host is known right after the enrolment
	g.Expect(h.settledWrites()).To(BeEmpty())
}

func TestThreat01_TokensThatAreGoodForNothing(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	expired, _ := h.token("edge", func(t *enrolment.Token) { t.ExpiresAt = h.clock.Now().Add(-time.Second) })
	used, _ := h.token("edge", func(t *enrolment.Token) { t.Used = 1 })
	orphan, _ := h.token("nobody")
	revoked, secret := h.token("edge")
	g.Expect(h.admin.Delete(t.Context(), secret)).To(Succeed())

	a := h.agent()
	first := a.enrol(identity.NewToken())
	g.Expect(first.status).To(Equal(http.StatusForbidden))
	g.Expect(first.problem().Type).To(Equal(protocol.ProblemTokenRefused))
	for name, token := range map[string]string{
		"expired": expired, "used up": used, "of no registration": orphan, "revoked": revoked, "none": "",
		"long": strings.Repeat("x", 5000), "odd": "a b",
	} {
		got := a.enrol(token)
		g.Expect(got.status).To(Equal(first.status), name)
		g.Expect(got.body).To(Equal(first.body), name)
	}
	g.Expect(h.writes.take()).To(Or(BeEmpty(), Equal([]string{"patch Secret"})), "the cache may be outdated, but the write is not")
	var hosts infrav1.ElementalHostList
	g.Expect(h.admin.List(t.Context(), &hosts, client.InNamespace(h.namespace))).To(Succeed())
	g.Expect(hosts.Items).To(BeEmpty())
	g.Expect(a.call(http.MethodGet, protocol.PathPlan, nil).problem().Type).To(Equal(protocol.ProblemUnknownHost))
}

func TestThreat02_TokenUsedTwiceAtOnce(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	const uses, agents = 5, 40
	token, secret := h.token("edge", func(t *enrolment.Token) { t.MaxUses = uses })
	status := make([]int, agents)
	var group sync.WaitGroup
	for i := range agents {
		a := h.agent()
		group.Go(func() {
			got, err := a.do(context.Background(), http.MethodPost, protocol.PathEnrol, token, enrolRequest())
			if err == nil {
				status[i] = got.status
			}
		})
	}
	group.Wait()
	count := map[int]int{}
	for _, s := range status {
		count[s]++
	}
	g.Expect(count).To(Equal(map[int]int{http.StatusOK: uses, http.StatusForbidden: agents - uses}))
	g.Expect(h.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(string(secret.Data[enrolment.UsedKey])).To(Equal("5"))
	var hosts infrav1.ElementalHostList
	g.Expect(h.admin.List(t.Context(), &hosts, client.InNamespace(h.namespace))).To(Succeed())
	g.Expect(hosts.Items).To(HaveLen(uses))
}

func TestThreat03_EnrolmentRepeated(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, secret := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 10 })
	a := h.agent()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() { _, _ = a.do(context.Background(), http.MethodPost, protocol.PathEnrol, token, enrolRequest()) })
	}
	group.Wait()
	var hosts infrav1.ElementalHostList
	g.Expect(h.admin.List(t.Context(), &hosts, client.InNamespace(h.namespace))).To(Succeed())
	g.Expect(hosts.Items).To(HaveLen(1))
	g.Expect(h.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(string(secret.Data[enrolment.UsedKey])).To(Equal("1"))
}

func TestTakenNameGetsASuffix(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", func(r *infrav1.ElementalRegistration) { r.Spec.HostTemplate.NamePattern = "db-1" })
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 10 })
	first, second := h.enrolled(token), h.enrolled(token)
	g.Expect(first.name).To(Equal("db-1"))
	g.Expect(second.name).To(Equal("db-1-" + second.id))
	g.Expect(h.host("db-1").Spec.Identity.KeyFingerprint).To(Equal(first.fingerprint))
}

func TestThreat06_RogueHostIsPending(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("manual", func(r *infrav1.ElementalRegistration) { r.Spec.Approval = infrav1.ApprovalManual })
	h.registration("automatic")
	manual, _ := h.token("manual")
	longLived, _ := h.token("automatic", func(t *enrolment.Token) { t.ExpiresAt = h.clock.Now().Add(30 * 24 * time.Hour) })
	for _, token := range []string{manual, longLived} {
		a := h.agent()
		g.Expect(a.enrol(token).body).To(ContainSubstring(`"approved":false`))
		g.Expect(h.host(a.name).Spec.Approval).To(Equal(infrav1.ApprovalPending))
		// A pending host has no operation, whatever its claim is.
		h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) {
			host.Spec.Claim = &infrav1.HostClaim{ID: "c1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
		}))
		p := a.plan("")
		g.Expect(p.Operation).To(BeNil())
		g.Expect(p.Desired.Servers).To(Equal([]string{h.url}))
		g.Expect(p.Desired.TrustBundle).To(ContainSubstring("BEGIN CERTIFICATE"))
		g.Expect(a.call(http.MethodGet, protocol.PathBootstrap+"?operation=c1", nil).status).To(Equal(http.StatusNotFound))
	}
}

func TestInterruptedEnrolmentIsCompleted(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.agent()
	host := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "half"},
		Spec: infrav1.ElementalHostSpec{
			HostID: "half", Approval: infrav1.ApprovalApproved,
			Identity: &infrav1.HostIdentity{KeyFingerprint: a.fingerprint, Generation: 1},
		},
	}
	g.Expect(h.admin.Create(t.Context(), host)).To(Succeed())
	h.cachedSoon(host)
	g.Expect(a.enrol("").status).To(Equal(http.StatusOK))
	g.Expect(h.host("half").Status.Inventory).NotTo(BeNil())
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost/status"}))
}

func TestThreat27_NoSecretIsLogged(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge")
	a := h.enrolled(token)
	other := identity.NewToken()
	h.agent().enrol(other)
	_, _ = a.do(t.Context(), http.MethodPost, protocol.PathReport, token, "{")
	h.cachedSoon(h.host(a.name))
	h.chain(a.name, "m1").create(h)
	served := a.bootstrap("claim-m1").body
	g.Expect(served).NotTo(BeEmpty())
	_, _ = a.do(t.Context(), http.MethodPost, protocol.PathReport, token, protocol.Report{Hello: &protocol.Hello{AgentVersion: "v1"}})
	der, err := identity.EncodeKey(a.key)
	g.Expect(err).NotTo(HaveOccurred())
	logged := h.logs.text()
	g.Expect(logged).To(ContainSubstring(`"decision":"Enrolled"`))
	g.Expect(logged).To(ContainSubstring(`"decision":"EnrolmentRefused"`))
	g.Expect(logged).To(ContainSubstring(a.fingerprint))
	for _, secret := range []string{token, other, identity.HashToken(token), string(der), served, base64.StdEncoding.EncodeToString([]byte(token))} {
		g.Expect(strings.Contains(logged, secret)).To(BeFalse())
	}
}
