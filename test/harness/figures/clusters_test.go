package figures_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
)

func TestFill(t *testing.T) {
	g := NewWithT(t)
	f := figures.Clusters{Clusters: 4}
	f.Fill(
		map[string]time.Duration{"a": time.Second, "b": 2 * time.Second, "c": 0, "d": 0},
		map[string]time.Duration{"a": 3 * time.Second, "b": 10 * time.Second, "c": 5 * time.Second},
		map[string]figures.Process{"manager": {CPUSeconds: 1}, "capi-core": {CPUSeconds: 2}, "etcd": {CPUSeconds: 1}},
		map[string]figures.Process{"manager": {CPUSeconds: 3, MemoryBytes: 7}, "capi-core": {CPUSeconds: 8}, "etcd": {CPUSeconds: 50}},
	)
	g.Expect(f).To(Equal(figures.Clusters{
		Clusters: 4, Provisioned: 3, MedianSeconds: 5, LongestSeconds: 8, Seconds: 10, Share: 0.25,
		Processes: map[string]figures.Process{"manager": {CPUSeconds: 2, MemoryBytes: 7}, "capi-core": {CPUSeconds: 6}, "etcd": {CPUSeconds: 49}},
	}))
	var none figures.Clusters
	none.Fill(nil, nil, nil, nil)
	g.Expect(none.Share).To(BeZero())
}
