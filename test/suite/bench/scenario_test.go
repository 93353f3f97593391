//go:build embedded

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

// play has the test program be something else.
const play = "play"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == play {
		if err := Play(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Each scenario runs with a few hosts, and what does not depend on the machine has the value that it must have.
func TestScenarios(t *testing.T) {
	options := Options{Hosts: 50, Rest: 2 * time.Second, Snapshots: 2, Database: 4 << 20, Self: []string{os.Args[0], play}, Progress: os.Stderr, Profiles: t.TempDir()}
	profiles := map[string]string{
		"memory": "memory-rest-heap.pb.gz", "enrol": "enrol-enrol-goroutine.pb.gz", "claims": "claims-rush-cpu.pb.gz", "plan": "plan-plan-allocs.pb.gz",
	}
	for name, exact := range map[string]map[string]string{
		"memory":    {"Writes to the API server": "0"},
		"enrol":     {},
		"storm":     {"Hosts that failed": "0"},
		"claims":    {"Hosts claimed twice, machines with two hosts": "0", "Writes to the API server a machine, from claim to provisioned": "7.00"},
		"plan":      {},
		"sites":     {"Machines that were replaced or reset": "0"},
		"rogue":     {"Conditions of honest hosts that changed": "0"},
		"tunnel":    {},
		"gateway":   {"Writes to the API server": "0", "Hosts and tunnels that did not come back": "0", "Conditions that changed": "0"},
		"snapshots": {},
		"failover":  {"Hosts that did not come back": "0", "Conditions of hosts that changed": "0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("TMPDIR", t.TempDir())
			section, err := figuresOf(t.Context(), find(g, name), options)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(section.Command).To(Equal("make bench-" + name))
			g.Expect(section.Machine).To(MatchRegexp(`^\d+ cores of .*, Linux .*, Go 1\..*, Kubernetes v1\.`))
			rows := map[string]table.Row{}
			for _, row := range section.Rows {
				g.Expect(row.Value).NotTo(BeEmpty(), row.Figure)
				rows[row.Figure] = row
			}
			for figure, value := range exact {
				g.Expect(rows).To(HaveKeyWithValue(figure, HaveField("Value", value)))
			}
			if profile, profiled := profiles[name]; profiled {
				g.Expect(filepath.Join(options.Profiles, profile)).To(BeAnExistingFile())
			}
			left, err := os.ReadDir(os.Getenv("TMPDIR"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(left).To(BeEmpty())
		})
	}
}

func find(g Gomega, name string) Scenario {
	for _, s := range Scenarios() {
		if s.Name == name {
			return s
		}
	}
	g.Expect(name).To(BeEmpty(), "there is no such scenario")
	return Scenario{}
}

func figuresOf(ctx context.Context, s Scenario, o Options) (section table.Section, err error) {
	err = Measure(ctx, []Scenario{s}, o, func(made table.Section) error {
		section = made
		return nil
	})
	return section, err
}

// A scenario that fails leaves nothing.
func TestScenarioFails(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())
	_, err := figuresOf(t.Context(), find(g, "memory"), Options{Hosts: 1, Self: []string{"none"}, Manager: filepath.Join(t.TempDir(), "none")})
	g.Expect(err).To(MatchError(HavePrefix("scenario memory: starting a management cluster: ")))
	_, err = figuresOf(t.Context(), find(g, "memory"), Options{Hosts: 1})
	g.Expect(err).To(MatchError(ContainSubstring("Options.Self")))
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}
