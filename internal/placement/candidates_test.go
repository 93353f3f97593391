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

func TestSortedSet(t *testing.T) {
	g := NewWithT(t)
	const most = 3000
	random := rand.New(rand.NewPCG(1, 2))
	var set placement.SortedSet
	members := map[string]bool{}
	for i := range 20_000 {
		s := fmt.Sprintf("%05d", random.IntN(most))
		// The set grows in the first half and shrinks in the second.
		if add := random.IntN(3) > 0; add == (i < 10_000) {
			set.Add(s)
			members[s] = true
		} else {
			set.Remove(s)
			delete(members, s)
		}
		if i%997 > 0 {
			continue
		}
		want := []string{}
		for s := range members {
			want = append(want, s)
		}
		slices.Sort(want)
		got := slices.AppendSeq([]string{}, set.All())
		g.Expect(got).To(Equal(want))
		g.Expect(set.Len()).To(Equal(len(want)))
	}
	for s := range members {
		set.Remove(s)
	}
	g.Expect(set.Len()).To(BeZero())
	set.Add("again")
	g.Expect(slices.Collect(set.All())).To(Equal([]string{"again"}))
}

// Candidates.Pick and Constraints.Pick choose the same host.
func TestCandidatesPickTheSameHostAsConstraints(t *testing.T) {
	g := NewWithT(t)
	selectors, err := selector.NewCompiler()
	g.Expect(err).NotTo(HaveOccurred())
	selecting := func(s infrav1.HostSelector) placement.Constraints {
		return placement.Constraints{Selector: selectors.Compile(t.Context(), &s)}
	}
	cases := map[string]placement.Constraints{
		"any":       {},
		"by name":   {HostName: "host-3"},
		"by label":  selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "1"}}),
		"by labels": selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "2", "rack": "1"}}),
		"by one of several": selecting(infrav1.HostSelector{MatchExpressions: []infrav1.HostSelectorRequirement{
			{Key: "size", Operator: "In", Values: []string{"1", "2"}},
		}}),
		"by an excluded label value": selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "0"}, MatchExpressions: []infrav1.HostSelectorRequirement{
			{Key: "size", Operator: "NotIn", Values: []string{"0"}},
		}}),
		"by an expression":                        selecting(infrav1.HostSelector{Expression: `host.labels["size"] == "2"`}),
		"by an expression that can't be compiled": selecting(infrav1.HostSelector{Expression: `host.size`}),
		"in a failure domain":                     {FailureDomain: "2", FailureDomainLabel: "rack"},
		"by a label value of no host":             selecting(infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "7"}}),
		"in a failure domain without hosts":       {FailureDomain: "7", FailureDomainLabel: "rack"},
	}
	random := rand.New(rand.NewPCG(3, 4))
	candidates := placement.NewCandidates()
	hosts := map[string]*infrav1.ElementalHost{}
	picked := map[string]bool{}
	for range 500 {
		h := host(fmt.Sprintf("host-%d", random.IntN(20)), label("size", fmt.Sprint(random.IntN(3))), label("rack", fmt.Sprint(random.IntN(3))))
		switch random.IntN(5) {
		case 0:
			delete(hosts, h.Name)
			candidates.Remove(h.Namespace, h.Name)
			continue
		case 1:
			claimed("c", infrav1.ClaimBound)(h)
		case 2:
			h.Status.Connection.State = infrav1.ConnectionDisconnected
		}
		hosts[h.Name] = h
		candidates.Update(h)
		var all []*infrav1.ElementalHost
		for _, h := range hosts {
			all = append(all, h)
		}
		for name, constraints := range cases {
			want := constraints.Pick(all)
			got := candidates.Pick("", constraints, func(*infrav1.ElementalHost) bool { return true })
			g.Expect(got).To(BeIdenticalTo(want), name)
			picked[name] = picked[name] || got != nil
		}
	}
	for name := range cases {
		never := name == "by an expression that can't be compiled" || name == "by a label value of no host" || name == "in a failure domain without hosts"
		g.Expect(picked[name]).To(Equal(!never), name)
	}
}

func TestCandidatesTryHostsInOrder(t *testing.T) {
	g := NewWithT(t)
	candidates := placement.NewCandidates()
	for _, name := range []string{"c", "a", "d", "b"} {
		candidates.Update(host(name))
	}
	elsewhere := host("0")
	elsewhere.Namespace = "elsewhere"
	candidates.Update(elsewhere)
	var tried []string
	got := candidates.Pick("", placement.Constraints{}, func(h *infrav1.ElementalHost) bool {
		tried = append(tried, h.Name)
		return h.Name == "c"
	})
	g.Expect(got.Name).To(Equal("c"))
	g.Expect(tried).To(Equal([]string{"a", "b", "c"}))
	g.Expect(candidates.Pick("", placement.Constraints{}, func(*infrav1.ElementalHost) bool { return false })).To(BeNil())
	g.Expect(candidates.Pick("nowhere", placement.Constraints{}, func(*infrav1.ElementalHost) bool { return true })).To(BeNil())
}
