package server_test

import (
	"net/http"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// namedItself returns an enrolment of a host that names itself like that.
func namedItself(name string) protocol.EnrolRequest {
	request := enrolRequest()
	request.Addresses = append(request.Addresses, protocol.Address{Type: protocol.AddressHostname, Address: name})
	return request
}

// startNaming starts the API with a registration whose hosts are named as they name themselves.
func startNaming(t *testing.T) (*harness, string) {
	t.Helper()
	h := start(t)
	h.registration("edge", func(r *infrav1.ElementalRegistration) {
		r.Spec.HostTemplate.NamePattern = "{{ .Hostname }}"
		r.Spec.HostTemplate.Labels = map[string]string{"site": "north"}
	})
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 100 })
	return h, token
}

// Hosts are named as they name themselves; those without a name of their own by their ID.
func TestHostsNamedAsTheyNameThemselves(t *testing.T) {
	g := NewWithT(t)
	h, token := startNaming(t)
	a := h.agent()
	g.Expect(a.enrolAs(token, namedItself("Node-7.berlin.example.com")).status).To(Equal(http.StatusOK))
	g.Expect(a.name).To(Equal("node-7"))
	for _, name := range []string{"localhost", "node_7", ""} {
		b := h.agent()
		g.Expect(b.enrolAs(token, namedItself(name)).status).To(Equal(http.StatusOK), name)
		g.Expect(b.name).To(Equal("host-"+b.id), name)
	}
	c := h.enrolled(token)
	g.Expect(c.name).To(Equal("host-"+c.id), "an agent that reports no name")
}

// A host that names itself like another one, in whatever spelling, gets an object of its own
// under another name, and the other one keeps all that it has.
func TestThreat81_NamedLikeAnotherHost(t *testing.T) {
	g := NewWithT(t)
	h, token := startNaming(t)
	victim := h.agent()
	g.Expect(victim.enrolAs(token, namedItself("node-7")).status).To(Equal(http.StatusOK))
	h.cachedSoon(h.patch(victim.name, func(host *infrav1.ElementalHost) { host.Labels["role"] = "control-plane" }))
	before := h.host(victim.name)
	for _, name := range []string{"node-7", "NODE-7", "node-7.elsewhere.example.com"} {
		impostor := h.agent()
		g.Expect(impostor.enrolAs(token, namedItself(name)).status).To(Equal(http.StatusOK), name)
		g.Expect(impostor.name).To(Equal("node-7-"+impostor.id), name)
		g.Expect(impostor.id).NotTo(Equal(victim.id), name)
		own := h.host(impostor.name)
		g.Expect(own.Labels).To(Equal(map[string]string{"site": "north", infrav1.RegistrationLabel: "edge"}), name)
		g.Expect(own.Spec.Identity.KeyFingerprint).To(Equal(impostor.fingerprint), name)
	}
	after := h.host(victim.name)
	g.Expect(after.Spec).To(Equal(before.Spec))
	g.Expect(after.Labels).To(Equal(before.Labels))
	g.Expect(after.Status.Addresses).To(Equal(before.Status.Addresses))
	victim.plan("")
}

// Of hosts with one name that enrol at the same time, exactly one gets it.
func TestThreat81_NamedAlikeAtOnce(t *testing.T) {
	g := NewWithT(t)
	h, token := startNaming(t)
	agents := make([]*agent, 10)
	var group sync.WaitGroup
	for i := range agents {
		agents[i] = h.agent()
		group.Go(func() { agents[i].enrolAs(token, namedItself("node-7")) })
	}
	group.Wait()
	names := map[string]string{}
	for _, a := range agents {
		g.Expect(a.name).To(Or(Equal("node-7"), Equal("node-7-"+a.id)))
		g.Expect(h.host(a.name).Spec.Identity.KeyFingerprint).To(Equal(a.fingerprint))
		names[a.name] = a.fingerprint
	}
	g.Expect(names).To(And(HaveLen(len(agents)), HaveKey("node-7")))
}
