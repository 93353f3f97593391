package clusters

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestFill(t *testing.T) {
	g := NewWithT(t)
	f := Figures{Clusters: 4}
	f.fill(
		map[string]time.Duration{"a": time.Second, "b": 2 * time.Second, "c": 0, "d": 0},
		map[string]time.Duration{"a": 3 * time.Second, "b": 10 * time.Second, "c": 5 * time.Second},
		map[string]Process{"manager": {CPUSeconds: 1}, "capi-core": {CPUSeconds: 2}, "etcd": {CPUSeconds: 1}},
		map[string]Process{"manager": {CPUSeconds: 3, MemoryBytes: 7}, "capi-core": {CPUSeconds: 8}, "etcd": {CPUSeconds: 50}},
	)
	g.Expect(f).To(Equal(Figures{
		Clusters: 4, Provisioned: 3, MedianSeconds: 5, LongestSeconds: 8, Seconds: 10, Share: 0.25,
		Processes: map[string]Process{"manager": {CPUSeconds: 2, MemoryBytes: 7}, "capi-core": {CPUSeconds: 6}, "etcd": {CPUSeconds: 49}},
	}))
	var none Figures
	none.fill(nil, nil, nil, nil)
	g.Expect(none.Share).To(BeZero())
}
