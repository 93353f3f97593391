package server_test

import (
	"context"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The machine of a free host takes over a host whose machine is gone. It gets the claim, and
// neither the bootstrap data nor a bootstrap to run.
func TestMachineTakesOver(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	lost, spare := h.enrolled(token), h.enrolled(token)
	h.cachedSoon(h.host(lost.name))
	h.cachedSoon(h.host(spare.name))
	h.chain(lost.name, "m1").create(h)
	g.Expect(lost.reportOperation(protocol.OperationBootstrap, "claim-m1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	free := h.host(spare.name)

	h.cachedSoon(h.patch(lost.name, func(host *infrav1.ElementalHost) {
		host.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: spare.fingerprint}, Generation: host.Spec.Identity.Generation}
	}))
	g.Expect(spare.plan("").Operation).To(BeNil(), "it is the free host until that is deleted")
	h.must(h.admin.Delete(context.Background(), free))
	g.Eventually(func() int { return spare.plan404().status }).Should(Equal(http.StatusUnauthorized), "its host is deleted")
	g.Expect(spare.plan404().problem().Enrol).To(BeTrue(), "it is invited")
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: spare.id, Namespace: free.Namespace, Name: free.Name}
	g.Expect(spare.enrolAs("", request).body).To(ContainSubstring(`"approved":true`))
	g.Expect([]string{spare.name, spare.id}).To(Equal([]string{lost.name, lost.id}))

	op := spare.plan("").Operation
	g.Expect(op.ID).To(Equal("claim-m1"))
	g.Expect(op.SucceededAt).NotTo(BeNil())
	g.Expect(spare.bootstrap("claim-m1").problem().Type).To(Equal(protocol.ProblemNoOperation))
	refused := lost.plan404().problem()
	g.Expect(refused.Type).To(Equal(protocol.ProblemUnknownHost))
	g.Expect(refused.Enrol).To(BeFalse(), "nobody has declared its key")
}
