package server_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// from makes the agent's connections come from another address.
func (a *agent) from(address string) *agent {
	a.h.tb.Helper()
	transport, ok := a.http.Transport.(*http.Transport)
	if !ok {
		a.h.tb.Fatal("the agent has another transport")
	}
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	return a
}

// enrolBody enrols with a body that can't be read.
func (a *agent) enrolBody(token string) answer {
	a.h.tb.Helper()
	got, err := a.do(a.h.tb.Context(), http.MethodPost, protocol.PathEnrol, token, "{")
	a.h.must(err)
	return got
}

// When many callers enrol whom neither their key nor a token invites, they are told to come
// back later. Their request is not read, and they need no other handshake. Invited hosts do
// not wait, and neither do a few strangers of other addresses.
func TestThreat15_ManyStrangersEnrol(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", severalUses)
	known, declared := h.enrolled(token), h.agent()
	h.declare("declared", infrav1.IdentityMatch{KeyFingerprint: declared.fingerprint})

	stranger := h.agent()
	n := stranger.dialled()
	const tries, most = 200, 100
	deferred := 0
	for range tries {
		got := stranger.enrolBody("")
		if got.status == http.StatusServiceUnavailable {
			g.Expect(got.header.Get("Retry-After")).To(Equal("15"))
			deferred++
		} else {
			g.Expect(got.status).To(Equal(http.StatusBadRequest), got.body)
		}
	}
	g.Expect(deferred).To(BeNumerically(">=", tries-most))
	g.Expect(n.Load()).To(BeNumerically("<=", most+1), "a deferred stranger keeps its connection")
	g.Expect(stranger.enrolBody("unknown").status).To(Equal(http.StatusServiceUnavailable), "a token that can't be used does not help")
	g.Expect(h.agent().from("127.0.0.2").enrol("").status).To(Equal(http.StatusForbidden), "others find room")

	g.Expect(h.agent().enrol(token).status).To(Equal(http.StatusOK), "a host with a token")
	g.Expect(declared.enrol("").status).To(Equal(http.StatusOK), "a declared host")
	g.Expect(known.enrol("").status).To(Equal(http.StatusOK), "a known host")

	h.step(time.Minute)
	g.Expect(stranger.enrol("").status).To(Equal(http.StatusForbidden))
}
