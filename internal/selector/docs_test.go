package selector_test

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// documented returns the expressions of docs/operating.md.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatalf("reading the documentation: %v", err)
	}
	_, after, _ := strings.Cut(string(text), "```cel\n")
	block, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("the documentation has no expressions")
	}
	return strings.Split(strings.TrimSpace(block), "\n")
}

// Each documented expression selects the first host of its example and does not select
// the second.
func TestDocumentedExpressions(t *testing.T) {
	type change = func(*infrav1.ElementalHost)
	examples := []struct {
		contains  string
		yes, no   change
		unlabeled selector.Outcome
	}{
		{"cpu.cores", func(h *infrav1.ElementalHost) { h.Status.Inventory.MemoryBytes = 32 * gib },
			func(h *infrav1.ElementalHost) { h.Status.Inventory.MemoryBytes = 31 * gib }, selector.Selected},
		{"!d.rotational", func(*infrav1.ElementalHost) {},
			func(h *infrav1.ElementalHost) { h.Status.Inventory.Disks[1].Rotational = true }, selector.Selected},
		{"nvme", func(h *infrav1.ElementalHost) { h.Status.Inventory.Disks[0].Name = "nvme1n1" },
			func(*infrav1.ElementalHost) {}, selector.Selected},
		{"defaultRoute", func(*infrav1.ElementalHost) {},
			func(h *infrav1.ElementalHost) { h.Status.Inventory.NICs[0].DefaultRoute = false }, selector.Selected},
		{"productName", func(h *infrav1.ElementalHost) { h.Labels["force"] = "" },
			func(*infrav1.ElementalHost) {}, selector.NotSelected},
		{"kubelet.version", func(h *infrav1.ElementalHost) {
			h.Status.Inventory.Kubernetes = &infrav1.HostKubernetes{Kubelet: infrav1.HostProgram{Version: "v1.36.3"}}
			h.Status.Inventory.Preflight = &infrav1.HostPreflight{CgroupVersion: 2}
		}, func(h *infrav1.ElementalHost) {
			h.Status.Inventory.Kubernetes = &infrav1.HostKubernetes{Kubelet: infrav1.HostProgram{Version: "v1.36.3"}}
		}, selector.Selected},
		{"takenPorts", func(h *infrav1.ElementalHost) {
			h.Status.Inventory.Preflight = &infrav1.HostPreflight{FreeBytes: 16 * gib, TakenPorts: []int32{10250}}
		}, func(h *infrav1.ElementalHost) {
			h.Status.Inventory.Preflight = &infrav1.HostPreflight{FreeBytes: 16 * gib, TakenPorts: []int32{6443}}
		}, selector.Selected},
		{"architecture", func(h *infrav1.ElementalHost) { h.Status.Inventory.Architecture = "arm64" },
			func(h *infrav1.ElementalHost) {
				h.Status.Inventory.Architecture = "arm64"
				h.Labels["gpu"] = "none"
			}, selector.Selected},
	}
	texts := documented(t)
	NewWithT(t).Expect(texts).To(HaveLen(len(examples)))
	c := newCompiler(t)
	for i, text := range texts {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			example := examples[i]
			g.Expect(text).To(ContainSubstring(example.contains))
			g.Expect(c.Check(text)).To(Succeed())
			s := c.Compile(t.Context(), &infrav1.HostSelector{Expression: text})
			g.Expect(s.Select(newHost(example.yes))).To(Equal(selector.Selected))
			g.Expect(s.Select(newHost(example.no))).To(Equal(selector.NotSelected))
			g.Expect(s.Select(newHost(example.yes, unlabeled))).To(Equal(example.unlabeled))
			g.Expect(s.Select(newHost(unknown))).To(Equal(selector.InventoryUnknown))
		})
	}
}
