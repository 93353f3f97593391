package server_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func previously(a *agent) *protocol.Previous {
	return &protocol.Previous{HostID: a.id, Namespace: a.h.namespace, Name: a.name}
}

// Another key that claims to be a host, in every field that it can send, is another host.
func TestThreat04_AssertedIdentity(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", readopting)
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 10 })
	victim := h.enrolled(token)
	before := h.host(victim.name)
	request := enrolRequest()
	request.Previous = previously(victim)
	for _, credential := range []string{"", token} {
		attacker := h.agent()
		g.Expect(attacker.enrolAs(credential, request).status).To(Equal(http.StatusOK))
		g.Expect(attacker.name).NotTo(Equal(victim.name))
		g.Expect(attacker.id).NotTo(Equal(victim.id))
		g.Expect(h.host(attacker.name).Spec.Approval).To(Equal(infrav1.ApprovalPending))
	}
	g.Expect(h.host(victim.name).Spec).To(Equal(before.Spec))
	g.Expect(h.host(victim.name).Status).To(Equal(before.Status))
}

// Labels decide where workloads run. A host can't influence them.
func TestThreat07_LabelsFromHost(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", func(r *infrav1.ElementalRegistration) {
		r.Spec.HostTemplate.Labels = map[string]string{"site": "north"}
		r.Spec.HostTemplate.NamePattern = "h-{{ .Inventory.SMBIOS.ProductName }}"
	})
	token, _ := h.token("edge")
	raw, err := json.Marshal(enrolRequest())
	g.Expect(err).NotTo(HaveOccurred())
	body := map[string]any{}
	g.Expect(json.Unmarshal(raw, &body)).To(Succeed())
	labels := map[string]string{"site": "south", "role": "control-plane"}
	body["labels"], body["annotations"], body["metadata"] = labels, labels, map[string]any{"labels": labels}
	body["hello"].(map[string]any)["labels"] = labels
	body["inventory"].(map[string]any)["labels"] = labels
	body["inventory"].(map[string]any)["smbios"] = map[string]string{"productName": "site: south", "serialNumber": "role=control-plane"}
	a := h.agent()
	got, err := a.do(t.Context(), http.MethodPost, protocol.PathEnrol, token, body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.status).To(Equal(http.StatusOK))
	want := map[string]string{"site": "north", infrav1.RegistrationLabel: "edge"}
	hosts := h.hosts()
	g.Expect(hosts).To(HaveLen(1))
	g.Expect(hosts[0].Labels).To(Equal(want))
	g.Expect(hosts[0].Annotations).To(BeEmpty())
	report := map[string]any{"labels": labels, "inventory": body["inventory"], "hello": body["hello"]}
	g.Expect(a.call(http.MethodPost, protocol.PathReport, report).status).To(Equal(http.StatusNoContent))
	g.Expect(h.host(hosts[0].Name).Labels).To(Equal(want))
}

// named returns an agent whose certificate has forged names.
func (h *harness) named(victim *agent, template *x509.Certificate) *agent {
	h.tb.Helper()
	a := h.agent()
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.Subject = pkix.Name{CommonName: victim.fingerprint, Organization: []string{"system:masters"}, SerialNumber: victim.id}
	template.DNSNames = []string{victim.name, victim.id}
	template.URIs = []*url.URL{{Scheme: "spiffe", Host: "elemental", Path: "/ns/" + h.namespace + "/host/" + victim.id}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	h.must(err)
	a.http.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.key}}
	return a
}

// Hosts send no certificate requests, and names in a client certificate are ignored.
func TestThreat08_NamesInCertificate(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	victim := h.ready()
	attacker := h.named(victim, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature})
	g.Expect(attacker.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	g.Expect(attacker.report(protocol.Report{}).problem().Type).To(Equal(protocol.ProblemUnknownHost))
	g.Expect(attacker.enrol("").problem().Type).To(Equal(protocol.ProblemTokenRefused))
	// Further certificates after the one whose key is proven are ignored.
	stolen, err := identity.ClientCertificate(victim.key)
	g.Expect(err).NotTo(HaveOccurred())
	own, err := identity.ClientCertificate(attacker.key)
	g.Expect(err).NotTo(HaveOccurred())
	own.Certificate = append(own.Certificate, stolen.Certificate...)
	chained := h.agentWith(attacker.key)
	chained.http.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{own}
	g.Expect(chained.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
}

// A host can read and change nothing of another host.
func TestThreat09_ForeignPlan(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	victim, attacker := h.enrolled(token), h.enrolled(token)
	h.chain(victim.name, "victim").create(h)
	p := victim.plan("")
	g.Expect(p.Operation.ID).To(Equal("claim-victim"))
	for _, query := range []string{"?host=" + victim.name, "?hostID=" + victim.id, "?after=" + p.Revision, "?name=" + victim.name + "&namespace=" + h.namespace} {
		got := attacker.call(http.MethodGet, protocol.PathPlan+query, nil)
		g.Expect(got.status).To(Equal(http.StatusOK))
		g.Expect(got.body).NotTo(ContainSubstring("victim"))
	}
	g.Expect(attacker.bootstrap("claim-victim").status).To(Equal(http.StatusNotFound))
	before := h.host(victim.name)
	g.Expect(attacker.reportOperation(protocol.OperationBootstrap, "claim-victim", protocol.StateFailed).problem().Type).To(Equal(protocol.ProblemNoOperation))
	g.Expect(attacker.rotate(victim, 1).status).To(Equal(http.StatusBadRequest))
	g.Expect(attacker.enrolAs("", withSerial("SN 1")).status).To(Equal(http.StatusOK), "its own key identifies it")
	g.Expect(h.host(victim.name)).To(Equal(before))
	g.Expect(h.logs.text()).NotTo(ContainSubstring(`"decision":"BootstrapServed"`))
}

// Headers that a proxy may set are ignored.
func TestThreat23_ForgedHeaders(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	victim := h.ready()
	attacker := h.agent()
	send := func(a *agent, path string) answer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+path, bytes.NewReader(nil))
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{
			"X-Forwarded-Client-Cert", "X-Client-Cert", "Ssl-Client-Cert", "X-Ssl-Client-Cert", "X-Amzn-Mtls-Clientcert", "Client-Cert",
			"X-Remote-User", "X-Forwarded-User", "Impersonate-User", "X-Forwarded-For", "X-Real-Ip", "Forwarded",
		} {
			req.Header.Set(name, victim.fingerprint)
		}
		req.Header.Set("X-Forwarded-Client-Cert", "Hash="+victim.fingerprint+";URI=spiffe://x/host/"+victim.id)
		resp, err := a.http.Do(req)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(resp.Body.Close()).To(Succeed())
		return answer{status: resp.StatusCode}
	}
	g.Expect(send(attacker, protocol.PathPlan).status).To(Equal(http.StatusUnauthorized))
	g.Expect(send(attacker, protocol.PathBootstrap+"?operation=c1").status).To(Equal(http.StatusUnauthorized))
	g.Expect(send(victim, protocol.PathPlan).status).To(Equal(http.StatusOK))
}

// A deleted host enrols again: only an administrator can approve it.
func TestThreat31_DeletedHostRejoins(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", readopting)
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 10 })
	for credential, reason := range map[string]infrav1.PendingReason{
		"": infrav1.PendingReadopted, "expired": infrav1.PendingReadopted, token: infrav1.PendingReturned,
	} {
		a := h.enrolled(token)
		id, name := a.id, a.name
		h.cachedSoon(h.host(name))
		g.Expect(h.admin.Delete(t.Context(), h.host(name))).To(Succeed())
		g.Eventually(func() string { return a.plan404().problem().Type }, eventually, often).Should(Equal(protocol.ProblemUnknownHost))
		request := enrolRequest()
		request.Previous = previously(a)
		for range 2 {
			g.Expect(a.enrolAs(credential, request).body).To(ContainSubstring(`"approved":false`))
		}
		host := h.host(a.name)
		g.Expect(host.Spec.HostID).NotTo(Equal(id), "a host ID is never used again")
		g.Expect(host.Spec.PendingReason).To(Equal(reason))
		g.Expect(host.Spec.Approval).To(Equal(infrav1.ApprovalPending))
		g.Expect(host.Spec.RegistrationRef).To(Equal(&infrav1.LocalReference{Name: "edge"}))
		g.Expect(host.Status.Inventory).NotTo(BeNil())
		g.Expect(a.plan("").Operation).To(BeNil())
		if credential != token {
			g.Expect(a.name).To(Equal(name))
		}
	}
	g.Expect(h.logs.text()).To(ContainSubstring(`"decision":"Readopted"`))

	// A host of another manager says so, and has a token of this one.
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: "x", Namespace: h.namespace, Name: "x"}
	g.Expect(h.agent().enrolAs(token, request).body).To(ContainSubstring(`"approved":false`))
}

func TestReadoption(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("denying")
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: "old", Namespace: h.namespace, Name: "Box 1!"}
	a := h.agent()
	g.Expect(a.enrolAs("", request).problem().Type).To(Equal(protocol.ProblemTokenRefused))
	h.registration("south", readopting)
	h.writes.take()
	g.Expect(a.enrolAs("", request).status).To(Equal(http.StatusOK))
	g.Expect(h.writes.take()).To(Equal([]string{"create ElementalHost", "patch ElementalHost/status"}))
	g.Expect(a.name).To(Equal("box-1"))
	g.Expect(h.host("box-1").Spec.RegistrationRef.Name).To(Equal("south"))
	h.registration("north", readopting)
	second := h.agent()
	g.Expect(second.enrolAs("", request).status).To(Equal(http.StatusOK))
	g.Expect(second.name).To(Equal("box-1-" + second.id))
	g.Expect(h.host(second.name).Spec.RegistrationRef).To(BeNil(), "both registrations allow it")
}
