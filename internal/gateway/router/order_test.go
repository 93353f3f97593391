package router

import (
	"math/rand/v2"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestOrder(t *testing.T) {
	of := func(name string, kind kind, streams int) candidate {
		return candidate{host: types.NamespacedName{Namespace: "default", Name: name}, kind: kind, streams: streams}
	}
	last := func(c candidate) candidate {
		c.servedLast = true
		return c
	}
	for name, tc := range map[string]struct {
		hosts []candidate
		want  []string
	}{
		"none":                              {},
		"fewest streams first":              {[]candidate{of("a", ready, 3), of("b", ready, 1), of("c", ready, 2)}, []string{"b", "c", "a"}},
		"by name":                           {[]candidate{of("c", ready, 1), of("a", ready, 1), of("b", ready, 1)}, []string{"a", "b", "c"}},
		"the one that served last":          {[]candidate{of("a", ready, 0), last(of("b", ready, 90)), of("c", ready, 1)}, []string{"b", "a", "c"}},
		"unready ones after ready ones":     {[]candidate{of("a", unready, 0), of("b", ready, 9), of("c", unready, 1)}, []string{"b", "a", "c"}},
		"the last one, if it is not ready":  {[]candidate{last(of("a", unready, 0)), of("b", ready, 9), of("c", unready, 0)}, []string{"b", "a", "c"}},
		"workers at the end":                {[]candidate{last(of("a", fallback, 0)), of("b", unready, 9), of("c", ready, 9)}, []string{"c", "b", "a"}},
		"workers among each other as usual": {[]candidate{of("a", fallback, 2), of("b", fallback, 1)}, []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 1))
			for range 10 {
				random.Shuffle(len(tc.hosts), func(i, j int) { tc.hosts[i], tc.hosts[j] = tc.hosts[j], tc.hosts[i] })
				var got []string
				for _, c := range sorted(tc.hosts) {
					got = append(got, c.host.Name)
				}
				NewWithT(t).Expect(got).To(Equal(tc.want))
			}
		})
	}
}
