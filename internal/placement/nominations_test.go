package placement_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

func TestNominatedHostsAreLeftToWhoNominatedThem(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	a, b := host("a"), host("b")
	hosts := []*infrav1.ElementalHost{a, b}
	var n placement.Nominations
	g.Expect(n.Pick(now, placement.Request{}, hosts)).To(BeIdenticalTo(a))
	g.Expect(n.Take(now, a)).To(BeFalse())
	now = now.Add(time.Second)
	g.Expect(n.Take(now, b)).To(BeTrue())
	g.Expect(n.Pick(now, placement.Request{}, hosts)).To(BeNil())

	n.Drop(b)
	g.Expect(n.Pick(now, placement.Request{}, hosts)).To(BeIdenticalTo(b), "given back")
	now = now.Add(placement.NominationTTL - time.Second)
	g.Expect(n.Take(now, a)).To(BeTrue(), "its nomination is over")
	g.Expect(n.Take(now, b)).To(BeFalse(), "it came a second later")
	n.Drop(a)
	g.Expect(n.Take(now.Add(time.Second/2), a)).To(BeTrue())
	g.Expect(n.Take(now.Add(placement.NominationTTL), a)).To(BeFalse(), "the end of the one that was given back is not this one's")
}

// A cluster's machines take the host that is its endpoint at once.
func TestHostNominatedForAnEndpointIsTheClusters(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	a, b := host("a"), host("b")
	hosts := []*infrav1.ElementalHost{a, b}
	c, d := placement.Request{ReservedFor: "c"}, placement.Request{ReservedFor: "d"}
	var n placement.Nominations
	g.Expect(n.PickReserved(now, c, hosts)).To(BeIdenticalTo(a))
	g.Expect(n.PickReserved(now, c, hosts)).To(BeIdenticalTo(a), "it chooses again")
	g.Expect(n.Take(now, a)).To(BeFalse(), "a worker does not get it")
	g.Expect(n.PickReserved(now, d, hosts)).To(BeIdenticalTo(b))
	g.Expect(n.Pick(now, placement.Request{}, hosts)).To(BeNil())
	g.Expect(n.Pick(now, c, hosts)).To(BeIdenticalTo(a), "the control plane does")
	g.Expect(n.Pick(now, c, hosts)).To(BeNil(), "one machine of it")
}

func TestNilNominatesNothing(t *testing.T) {
	g := NewWithT(t)
	a := host("a")
	var n *placement.Nominations
	for range 2 {
		g.Expect(n.Pick(time.Time{}, placement.Request{}, []*infrav1.ElementalHost{a})).To(BeIdenticalTo(a))
		g.Expect(n.Take(time.Time{}, a)).To(BeTrue())
	}
	n.Drop(a)
}
