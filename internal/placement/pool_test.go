package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

func TestOrder(t *testing.T) {
	g := NewWithT(t)
	const most = 3000
	random := rand.New(rand.NewPCG(1, 2))
	var order placement.Order
	is := map[string]bool{}
	for i := range 20_000 {
		s := fmt.Sprintf("%05d", random.IntN(most))
		// More come than go at first, and then the other way round.
		if add := random.IntN(3) > 0; add == (i < 10_000) {
			order.Add(s)
			is[s] = true
		} else {
			order.Remove(s)
			delete(is, s)
		}
		if i%997 > 0 {
			continue
		}
		want := []string{}
		for s := range is {
			want = append(want, s)
		}
		slices.Sort(want)
		got := slices.AppendSeq([]string{}, order.All())
		g.Expect(got).To(Equal(want))
		g.Expect(order.Len()).To(Equal(len(want)))
	}
	for s := range is {
		order.Remove(s)
	}
	g.Expect(order.Len()).To(BeZero())
	order.Add("again")
	g.Expect(slices.Collect(order.All())).To(Equal([]string{"again"}))
}

// What is picked from a pool is what is picked from a list.
func TestPoolPicksAsARequestDoes(t *testing.T) {
	g := NewWithT(t)
	selectors, err := selector.NewCompiler()
	g.Expect(err).NotTo(HaveOccurred())
	selecting := func(s infrav1.HostSelector) placement.Request {
		return placement.Request{Selector: selectors.Compile(t.Context(), &s)}
	}
	requests := map[string]placement.Request{
		"any":       {},
		"by name":   {HostName: "host-3"},
		"by label":  selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "1"}}),
		"by labels": selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "2", "rack": "1"}}),
		"by one of several": selecting(infrav1.HostSelector{MatchExpressions: []infrav1.HostSelectorRequirement{
			{Key: "size", Operator: "In", Values: []string{"1", "2"}},
		}}),
		"by what is not": selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "0"}, MatchExpressions: []infrav1.HostSelectorRequirement{
			{Key: "size", Operator: "NotIn", Values: []string{"0"}},
		}}),
		"by an expression":       selecting(infrav1.HostSelector{Expression: `host.labels["size"] == "2"`}),
		"by what can't be":       selecting(infrav1.HostSelector{Expression: `host.size`}),
		"in a failure domain":    {FailureDomain: "2", FailureDomainLabel: "rack"},
		"a label nobody has":     selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "7"}}),
		"in none with any label": {FailureDomain: "7", FailureDomainLabel: "rack"},
	}
	random := rand.New(rand.NewPCG(3, 4))
	pool := placement.NewPool()
	hosts := map[string]*infrav1.ElementalHost{}
	picked := map[string]bool{}
	for range 500 {
		h := host(fmt.Sprintf("host-%d", random.IntN(20)), label("size", fmt.Sprint(random.IntN(3))), label("rack", fmt.Sprint(random.IntN(3))))
		switch random.IntN(5) {
		case 0:
			delete(hosts, h.Name)
			pool.Remove(h.Namespace, h.Name)
			continue
		case 1:
			claimed("c", infrav1.ClaimBound)(h)
		case 2:
			h.Status.Connection.State = infrav1.ConnectionDisconnected
		}
		hosts[h.Name] = h
		pool.Set(h)
		var all []*infrav1.ElementalHost
		for _, h := range hosts {
			all = append(all, h)
		}
		for name, request := range requests {
			want := request.Pick(all)
			got := pool.Pick("", request, func(*infrav1.ElementalHost) bool { return true })
			g.Expect(got).To(BeIdenticalTo(want), name)
			picked[name] = picked[name] || got != nil
		}
	}
	for name := range requests {
		never := name == "by what can't be" || name == "a label nobody has" || name == "in none with any label"
		g.Expect(picked[name]).To(Equal(!never), name)
	}
}

func TestPoolOffersOneAfterTheOther(t *testing.T) {
	g := NewWithT(t)
	pool := placement.NewPool()
	for _, name := range []string{"c", "a", "d", "b"} {
		pool.Set(host(name))
	}
	elsewhere := host("0")
	elsewhere.Namespace = "elsewhere"
	pool.Set(elsewhere)
	var offered []string
	got := pool.Pick("", placement.Request{}, func(h *infrav1.ElementalHost) bool {
		offered = append(offered, h.Name)
		return h.Name == "c"
	})
	g.Expect(got.Name).To(Equal("c"))
	g.Expect(offered).To(Equal([]string{"a", "b", "c"}))
	g.Expect(pool.Pick("", placement.Request{}, func(*infrav1.ElementalHost) bool { return false })).To(BeNil())
	g.Expect(pool.Pick("nowhere", placement.Request{}, func(*infrav1.ElementalHost) bool { return true })).To(BeNil())
}
