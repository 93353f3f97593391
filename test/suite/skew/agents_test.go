//go:build embedded

package skew

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// harness is the folder of the virtual hosts, in each checkout.
const harness = "test/harness/fleet"

// version is a version of this repository.
type version struct {
	name, checkout string
	// program runs virtual hosts with agents of the version.
	program string
	// follows: the agents have the capability Follow, which v0.1.0 lacks.
	follows bool
}

// newVersion builds the agents of a version. The virtual hosts around them are always those of this repository.
func (r *rig) newVersion(name, checkout string, follows bool) *version {
	r.t.Helper()
	return &version{name: name, checkout: checkout, program: r.build(checkout, r.presentHosts(checkout)), follows: follows}
}

// presentHosts are the replacements of the virtual hosts of a checkout by those of this repository.
func (r *rig) presentHosts(checkout string) map[string]string {
	r.t.Helper()
	now, replacements := root(r.t), map[string]string{}
	replace := func(folder string, by func(path string) string) {
		r.Expect(fs.WalkDir(os.DirFS(folder), harness, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				replacements[filepath.Join(checkout, path)] = by(path)
			}
			return err
		})).To(Succeed())
	}
	// A blank path removes a file.
	replace(checkout, func(string) string { return "" })
	replace(now, func(path string) string { return filepath.Join(now, path) })
	return replacements
}

// build builds the program of virtual hosts from a checkout, with other files in the place of some of its own. The checkout
// stays as it is.
func (r *rig) build(checkout string, replacements map[string]string) (program string) {
	r.t.Helper()
	folder := r.t.TempDir()
	program, overlay := filepath.Join(folder, "fleet"), filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replacements})
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(os.WriteFile(overlay, text, 0o600)).To(Succeed())
	_, err = shell.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-overlay", overlay, "-o", program, "./" + harness + "/cmd/fleet"},
		Dir:  checkout, Env: []string{"CGO_ENABLED=0"},
	}.Run(r.t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	return program
}

// group is a part of the hosts, whose agents have one version.
type group struct {
	r       *rig
	version *version
	fleet   *remote.Fleet
	// settings has the file by which the hosts keep their state from one version to the next.
	settings fleet.Settings
}

// newGroup starts hosts with agents of a version.
func (r *rig) newGroup(prefix string, count int, v *version) {
	r.t.Helper()
	g := &group{r: r, settings: fleet.Settings{
		Count: count, Prefix: prefix, Servers: []string{r.management.AgentURL}, TrustBundle: r.management.CABundle, Token: r.token,
		BootTime: 100 * time.Millisecond, Saved: filepath.Join(r.t.TempDir(), "hosts.json"),
		// Bootstraps are under way when agents change.
		Faults: fleet.Faults{SlowBootstraps: 4 * time.Second},
	}}
	g.start(v)
	r.t.Cleanup(func() { _ = g.fleet.Close() })
	r.groups = append(r.groups, g)
}

func (g *group) start(v *version) {
	g.r.t.Helper()
	g.version, g.settings.Version = v, v.name
	f, err := remote.Start(g.r.t.Context(), []string{v.program}, g.settings, os.Stderr)
	g.r.Expect(err).NotTo(HaveOccurred())
	g.fleet = f
	g.r.Expect(f.Do(g.r.t.Context(), remote.PowerOn, 0)).To(Succeed())
}

// change stops the agents during bootstraps and starts those of another version on the same hosts, which do not reboot. It
// returns when the manager has heard from each new agent, with the number of hosts that were being bootstrapped.
func (g *group) change(v *version) (bootstrapping int) {
	g.r.t.Helper()
	g.r.Eventually(func(with Gomega) {
		bootstrapping = g.bootstrapping(with)
		with.Expect(bootstrapping).To(BeNumerically(">=", 2))
	}).Should(Succeed())
	g.r.Expect(g.fleet.Close()).To(Succeed())
	g.start(v)
	g.r.Eventually(g.expectVersion).Should(Succeed())
	return bootstrapping
}

// bootstrapping counts the hosts that are being bootstrapped.
func (g *group) bootstrapping(with Gomega) int {
	count := 0
	for _, h := range g.hosts(with) {
		if c := meta.FindStatusCondition(h.Status.Conditions, infrav1.BootstrappedCondition); c != nil && c.Reason == infrav1.BootstrappingReason {
			count++
		}
	}
	return count
}

// hosts returns the ElementalHosts of the group.
func (g *group) hosts(with Gomega) []infrav1.ElementalHost {
	g.r.t.Helper()
	all, err := g.fleet.Status(g.r.t.Context())
	with.Expect(err).NotTo(HaveOccurred())
	hosts := make([]infrav1.ElementalHost, len(all))
	for i := range all {
		with.Expect(all[i].ElementalHost).NotTo(BeEmpty(), "%s is not enrolled", all[i].Name)
		key := client.ObjectKey{Namespace: sites, Name: all[i].ElementalHost}
		with.Expect(g.r.admin.Get(g.r.t.Context(), key, &hosts[i])).To(Succeed())
	}
	return hosts
}

// expectVersion expects that agents of the group's version have reported on all of its hosts.
func (g *group) expectVersion(with Gomega) {
	for _, h := range g.hosts(with) {
		with.Expect(h.Status.Agent).NotTo(BeNil(), h.Name)
		with.Expect(h.Status.Agent.Version).To(Equal(g.version.name), h.Name)
		follows := slices.Contains(h.Status.Agent.Capabilities, string(protocol.CapabilityFollow))
		with.Expect(follows).To(Equal(g.version.follows), "%s has an agent with %v", h.Name, h.Status.Agent.Capabilities)
	}
}

// done counts what hosts have done.
func (r *rig) done() (bootstraps, resets int) {
	r.t.Helper()
	for _, g := range r.groups {
		all, err := g.fleet.Status(r.t.Context())
		r.Expect(err).NotTo(HaveOccurred())
		for i := range all {
			bootstraps, resets = bootstraps+all[i].Done.Bootstraps, resets+all[i].Done.Resets
		}
	}
	return bootstraps, resets
}
