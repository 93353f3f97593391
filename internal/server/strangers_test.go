package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/api"
)

// readopting lets hosts without a token come back as pending hosts.
func readopting(r *infrav1.ElementalRegistration) { r.Spec.Readoption = infrav1.ReadoptionPending }

// onAllRoutes makes a request on each route of the API, and on one that does not exist.
func (a *agent) onAllRoutes() map[string]answer {
	a.h.tb.Helper()
	answers := map[string]answer{}
	for _, route := range append(api.Routes(), "GET /v1/none", "DELETE "+protocol.PathPlan) {
		method, path, _ := strings.Cut(route, " ")
		var body any
		switch path {
		case protocol.PathEnrol:
			body = enrolRequest()
		case protocol.PathBootstrap:
			path += "?operation=claim-m1"
		case protocol.PathReport:
			body = protocol.Report{}
		case protocol.PathRotate:
			body = rotation(a.h.tb, a, a.h.agent(), 1)
		}
		got, err := a.do(a.h.tb.Context(), method, path, "", body)
		a.h.must(err)
		got.header.Del("Date")
		answers[route] = got
	}
	return answers
}

// Strangers get the same answers on all routes, header by header, whatever exists: for a key
// that nobody knows, of a deleted host, of a host that an administrator gave to another
// machine, that other tenants have only written into their hosts, and whichever host they
// say that they are. Only the owner of a key learns that its host was rejected.
func TestThreat29_EqualAnswersOnAllRoutes(t *testing.T) {
	g := NewWithT(t)
	h, tenant := startWithThief(t)
	token, _ := h.token("edge", severalUses)
	existing := h.enrolled(token)
	h.chain(existing.name, "m1").create(h)
	unknown := h.agent()
	want := unknown.onAllRoutes()
	g.Expect(want["GET "+protocol.PathPlan].problem().Type).To(Equal(protocol.ProblemUnknownHost))
	g.Expect(want["POST "+protocol.PathEnrol].problem().Type).To(Equal(protocol.ProblemTokenRefused))

	deleted, replaced, ambiguous := h.enrolled(token), h.enrolled(token), h.agent()
	deleted.deleteHost()
	h.cachedSoon(h.patch(replaced.name, func(host *infrav1.ElementalHost) { host.Spec.Identity.KeyFingerprint = otherKey }))
	for range 2 {
		h.claimKey(tenant, having(ambiguous.fingerprint))
	}
	naming := func(home string) *agent {
		a := h.agent()
		a.home = home
		return a
	}
	for name, stranger := range map[string]*agent{
		"unknown key": h.agent(), "key of a deleted host": deleted, "former key of a host": replaced, "key in hosts of a tenant": ambiguous,
		"names a host": naming(h.namespace + "/" + existing.name), "names no host": naming(h.namespace + "/none"),
		"names no namespace": naming("none/none"), "names nothing": naming("/"),
	} {
		for route, got := range stranger.onAllRoutes() {
			g.Expect(got).To(Equal(want[route]), "%s: %s", name, route)
		}
	}

	// A known host learns nothing of others.
	other := h.enrolled(token)
	g.Expect(other.bootstrap("claim-m1").body).To(Equal(other.bootstrap("none").body))
	g.Expect(other.reportOperation(protocol.OperationBootstrap, "claim-m1", protocol.StateFailed).body).
		To(Equal(other.reportOperation(protocol.OperationBootstrap, "none", protocol.StateFailed).body))
}

// Requests of strangers are limited by source on all routes, also on those that do not exist,
// and before anything is looked up. Known hosts behind the same address are not affected.
func TestThreat29_LimitBeforeLookUp(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.EnrolRate, o.EnrolBurst = 0.001, 3 })
	known := h.ready() // one request: its enrolment
	for _, path := range []string{"/favicon.ico", protocol.PathPlan} {
		got, err := h.agent().do(t.Context(), http.MethodGet, path, "", nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.status).To(BeElementOf(http.StatusNotFound, http.StatusUnauthorized), path)
	}
	stranger := h.agent()
	n := stranger.dialled()
	first := h.writes.lookUps()
	for i := range 20 {
		for route, got := range stranger.onAllRoutes() {
			g.Expect(got.status).To(Equal(http.StatusTooManyRequests), route)
		}
		if i == 0 {
			first = h.writes.lookUps() // the key was looked up once, when the connection began
		}
	}
	g.Expect(n.Load()).To(BeEquivalentTo(1))
	g.Expect(h.writes.lookUps()).To(Equal(first), "nothing was looked up")
	for range 10 {
		known.plan("")
	}
}

// By default nothing is stored for a caller without a token, whatever it says that it was.
func TestThreat45_StrangersStoreNothingByDefault(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	refused := h.agent().enrol("")
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: "x", Namespace: h.namespace, Name: "x"}
	for range 5 {
		g.Expect(h.agent().enrolAs("", request).body).To(Equal(refused.body), "the answer does not tell that the namespace exists")
	}
	g.Expect(h.hosts()).To(BeEmpty())
	g.Expect(h.writes.take()).To(BeEmpty())
}

// While re-adoption is allowed, strangers can use up its places. Hosts that come back with a
// token find places all the same, and so do new hosts.
func TestThreat45_InvitedHostsComeBack(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", readopting, func(r *infrav1.ElementalRegistration) { r.Spec.MaxPendingHosts = 2 })
	token, _ := h.token("edge", severalUses)
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: "x", Namespace: h.namespace, Name: "x"}
	var status []int
	for range 4 {
		status = append(status, h.agent().enrolAs("", request).status)
	}
	slices.Sort(status)
	g.Expect(status).To(Equal([]int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests}))
	g.Expect(h.agent().enrolAs(token, request).body).To(ContainSubstring(`"approved":false`))
	g.Expect(h.agent().enrol(token).body).To(ContainSubstring(`"approved":true`))
}
