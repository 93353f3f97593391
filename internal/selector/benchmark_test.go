package selector_test

import (
	"fmt"
	"testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// crowded is a host whose inventory is as large as the API allows.
func crowded(h *infrav1.ElementalHost) {
	const most = 64
	inventory := h.Status.Inventory
	inventory.Disks, inventory.NICs = nil, nil
	for i := range most {
		inventory.Disks = append(inventory.Disks, infrav1.HostDisk{Name: fmt.Sprintf("sd%d", i), SizeBytes: gib, Rotational: true})
		nic := infrav1.HostNIC{Name: fmt.Sprintf("eth%d", i)}
		for j := range most {
			nic.Addresses = append(nic.Addresses, fmt.Sprintf("10.2.%d.%d/24", i, j))
		}
		inventory.NICs = append(inventory.NICs, nic)
	}
}

// BenchmarkSelect measures the evaluation of ordinary expressions for 10,000 ordinary
// hosts, and of expensive expressions for a host as large as the API allows.
func BenchmarkSelect(b *testing.B) {
	const fleet = 10_000
	ordinary, worst := newHost(), newHost(crowded)
	for _, bench := range []struct {
		name, text string
		host       *infrav1.ElementalHost
		hosts      int
	}{
		{"labels", "", ordinary, fleet},
		{"cores", `host.inventory.cpu.cores >= 16`, ordinary, fleet},
		{"disks", `host.inventory.disks.exists(d, !d.rotational && d.sizeBytes >= 1000 * 1024 * 1024 * 1024)`, ordinary, fleet},
		{"addresses", `host.inventory.nics.exists(n, n.addresses.exists(a, a.startsWith("10.3.")))`, ordinary, fleet},
		{"worst", `host.inventory.nics.exists(n, n.addresses.exists(a, a.startsWith("10.3.")))`, worst, 1},
		{"regexp", `host.inventory.nics.exists(n, n.name.matches("^([a-z]|[0-9])*x$"))`, worst, 1},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := newCompiler(b).Compile(b.Context(), &infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r1"}, Expression: bench.text})
			if s.Err() != nil {
				b.Fatal(s.Err())
			}
			for b.Loop() {
				for range bench.hosts {
					s.Select(bench.host)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(bench.hosts), "ns/host")
		})
	}
}

// BenchmarkCompile measures the compilation of a new expression and of a cached one.
func BenchmarkCompile(b *testing.B) {
	const text = `host.inventory.disks.exists(d, !d.rotational && d.sizeBytes >= 1000 * 1024 * 1024 * 1024)`
	b.Run("first", func(b *testing.B) {
		c := newCompiler(b)
		for i := 0; b.Loop(); i++ {
			if err := c.Check(fmt.Sprintf("%s || host.inventory.cpu.cores == %d", text, i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		c := newCompiler(b)
		for b.Loop() {
			c.Compile(b.Context(), &infrav1.HostSelector{Expression: text})
		}
	})
}
