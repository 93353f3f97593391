package placement_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

func TestNominatedHostIsNotPickedAgain(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	a, b := host("a"), host("b")
	hosts := []*infrav1.ElementalHost{a, b}
	var n placement.Nominations
	g.Expect(n.Pick(now, placement.Constraints{}, hosts)).To(BeIdenticalTo(a))
	g.Expect(n.Nominate(now, a)).To(BeFalse())
	now = now.Add(time.Second)
	g.Expect(n.Nominate(now, b)).To(BeTrue())
	g.Expect(n.Pick(now, placement.Constraints{}, hosts)).To(BeNil())

	n.Remove(b)
	g.Expect(n.Pick(now, placement.Constraints{}, hosts)).To(BeIdenticalTo(b), "its nomination was removed")
	now = now.Add(placement.NominationTTL - time.Second)
	g.Expect(n.Nominate(now, a)).To(BeTrue(), "its nomination has expired")
	g.Expect(n.Nominate(now, b)).To(BeFalse(), "it was nominated a second later")
	n.Remove(a)
	g.Expect(n.Nominate(now.Add(time.Second/2), a)).To(BeTrue())
	g.Expect(n.Nominate(now.Add(placement.NominationTTL), a)).To(BeFalse(), "the expiry of the removed nomination does not count")
}

// The control-plane machines of a cluster can claim the host of its endpoint at once.
func TestHostNominatedForAnEndpointStaysAvailableToItsCluster(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	a, b := host("a"), host("b")
	hosts := []*infrav1.ElementalHost{a, b}
	c, d := placement.Constraints{ReservedFor: "c"}, placement.Constraints{ReservedFor: "d"}
	var n placement.Nominations
	g.Expect(n.PickForEndpoint(now, c, hosts)).To(BeIdenticalTo(a))
	g.Expect(n.PickForEndpoint(now, c, hosts)).To(BeIdenticalTo(a), "the same cluster picks it again")
	g.Expect(n.Nominate(now, a)).To(BeFalse(), "workers can't have it")
	g.Expect(n.PickForEndpoint(now, d, hosts)).To(BeIdenticalTo(b))
	g.Expect(n.Pick(now, placement.Constraints{}, hosts)).To(BeNil())
	g.Expect(n.Pick(now, c, hosts)).To(BeIdenticalTo(a), "a control-plane machine can")
	g.Expect(n.Pick(now, c, hosts)).To(BeNil(), "only one control-plane machine can")
}

func TestNilNominationsNominateNothing(t *testing.T) {
	g := NewWithT(t)
	a := host("a")
	var n *placement.Nominations
	for range 2 {
		g.Expect(n.Pick(time.Time{}, placement.Constraints{}, []*infrav1.ElementalHost{a})).To(BeIdenticalTo(a))
		g.Expect(n.Nominate(time.Time{}, a)).To(BeTrue())
	}
	n.Remove(a)
}
