package bench

import (
	"encoding/json"
	"io"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

func TestReport(t *testing.T) {
	g := NewWithT(t)
	f := &figures.Clusters{}
	g.Expect(json.Unmarshal([]byte(`{"clusters": 200, "controlPlanes": 1, "workers": 1, "hosts": 420, "provisioned": 199, "parallel": 20,
		"seconds": 612, "medianSeconds": 50.5, "longestSeconds": 90, "share": 0.125, "other": 1,
		"processes": {"manager": {"cpuSeconds": 12, "memoryBytes": 104857600}, "etcd": {"cpuSeconds": 0.5, "memoryBytes": 1048576}}}`), f)).To(Succeed())
	r := &run{progress: shell.NewProgress(io.Discard)}
	r.add(f.Report())
	g.Expect(r.rows).To(Equal([]table.Row{
		{Figure: "200 clusters of 1 control plane and 1 worker: all run after", Value: "612 s"},
		{Figure: "Clusters that do not run", Value: "1", Target: "0", Missed: true},
		{Figure: "One cluster, median", Value: "50.5 s"},
		{Figure: "One cluster, longest", Value: "90.0 s"},
		{Figure: "Share of this provider in the CPU time of all managers", Value: "12.5 %"},
	}))
	g.Expect(r.notes).To(ConsistOf(And(
		ContainSubstring("on 420 virtual hosts, 20 at a time."), ContainSubstring("etcd 500 ms (1.00 MiB), manager 12.0 s (100 MiB)."))))
}
