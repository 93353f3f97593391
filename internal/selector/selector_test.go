package selector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

const gib = 1 << 30

func newHost(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Name: "box-1", Labels: map[string]string{"rack": "r1", "topology.kubernetes.io/zone": "a"}},
		Status: infrav1.ElementalHostStatus{Inventory: &infrav1.HostInventory{
			Architecture: "amd64",
			SMBIOS:       infrav1.HostSMBIOS{Manufacturer: "Acme", ProductName: "Edge 200"},
			CPU:          infrav1.HostCPU{Model: "x", Cores: 8},
			MemoryBytes:  16 * gib,
			Disks:        []infrav1.HostDisk{{Name: "sda", SizeBytes: 100 * gib, Rotational: true}, {Name: "nvme0n1", SizeBytes: 500 * gib}},
			NICs:         []infrav1.HostNIC{{Name: "eth0", MAC: "02:00:00:00:00:01", SpeedMbps: 10000, DefaultRoute: true, Addresses: []string{"10.1.0.4/24"}}},
			OS:           infrav1.HostOS{ID: "debian", VersionID: "12"},
		}},
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

func unknown(h *infrav1.ElementalHost)   { h.Status.Inventory = nil }
func unlabeled(h *infrav1.ElementalHost) { h.Labels = nil }
func empty(h *infrav1.ElementalHost)     { h.Status.Inventory = &infrav1.HostInventory{} }

func newCompiler(tb testing.TB) *selector.Compiler {
	tb.Helper()
	c, err := selector.NewCompiler()
	if err != nil {
		tb.Fatalf("making a compiler: %v", err)
	}
	return c
}

func TestExpressions(t *testing.T) {
	c := newCompiler(t)
	const yes, no, unreported = selector.Selected, selector.NotSelected, selector.InventoryUnknown
	for text, want := range map[string]struct{ full, bare, fresh, unlabeled selector.Outcome }{
		`true`:                 {yes, yes, yes, yes},
		`false`:                {no, no, no, no},
		`host.name == "box-1"`: {yes, yes, yes, yes},
		`host.name.startsWith("box-") && !host.name.endsWith("2")`:                  {yes, yes, yes, yes},
		`host.labels["rack"] == "r1"`:                                               {yes, yes, yes, no},
		`host.labels.rack in ["r1", "r2"]`:                                          {yes, yes, yes, no},
		`!("rack" in host.labels)`:                                                  {no, no, no, yes},
		`has(host.labels.rack)`:                                                     {yes, yes, yes, no},
		`host.labels.rack == "r1" || host.inventory.cpu.cores > 4`:                  {yes, yes, unreported, yes},
		`host.labels.exists(k, k.startsWith("topology.") && host.labels[k] == "a")`: {yes, yes, yes, no},
		// A missing value counts as zero.
		`host.inventory.cpu.cores >= 8`:                                              {yes, no, unreported, yes},
		`host.inventory.cpu.cores < 8`:                                               {no, yes, unreported, no},
		`host.inventory.memoryBytes >= 16 * 1024 * 1024 * 1024`:                      {yes, no, unreported, yes},
		`host.inventory.cpu.cores > 7.5`:                                             {yes, no, unreported, yes},
		`has(host.inventory.cpu)`:                                                    {yes, no, unreported, yes},
		`has(host.inventory.cpu.cores)`:                                              {yes, no, unreported, yes},
		`!has(host.inventory.smbios.serialNumber)`:                                   {yes, yes, unreported, yes},
		`has(host.inventory)`:                                                        {yes, yes, unreported, yes},
		`host.inventory.architecture == "amd64"`:                                     {yes, no, unreported, yes},
		`host.inventory.os.id == "debian" && int(host.inventory.os.versionID) >= 12`: {yes, no, unreported, yes},
		`host.inventory.disks.exists(d, !d.rotational && d.sizeBytes >= 400 * 1024 * 1024 * 1024)`: {yes, no, unreported, yes},
		`host.inventory.disks.all(d, d.sizeBytes > 0)`:                                             {yes, yes, unreported, yes},
		`host.inventory.disks.exists_one(d, d.rotational)`:                                         {yes, no, unreported, yes},
		`host.inventory.disks.filter(d, !d.rotational).size() == 1`:                                {yes, no, unreported, yes},
		`host.inventory.disks[7].rotational`:                                                       {no, no, unreported, no},
		`host.inventory.nics.exists(n, n.addresses.exists(a, a.startsWith("10.1.")))`:              {yes, no, unreported, yes},
		`host.inventory.smbios.productName.matches("^Edge [0-9]+$")`:                               {yes, no, unreported, yes},
		`matches(host.inventory.smbios.productName, "^Edge$")`:                                     {no, no, unreported, no},
		`host.inventory.cpu.cores / 0 == 1`:                                                        {no, no, unreported, no},
		`[host].exists(h, h.inventory.cpu.cores == 8)`:                                             {yes, no, unreported, yes},
		`has(host.inventory.kubernetes)`:                                                           {no, no, unreported, no},
		`host.inventory.kubernetes.kubelet.version == ""`:                                          {yes, yes, unreported, yes},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(c.Check(text)).To(Succeed())
			s := c.Compile(t.Context(), &infrav1.HostSelector{Expression: text})
			g.Expect(s.Err()).NotTo(HaveOccurred())
			got := []selector.Outcome{s.Select(newHost()), s.Select(newHost(empty)), s.Select(newHost(unknown)), s.Select(newHost(unlabeled))}
			g.Expect(got).To(Equal([]selector.Outcome{want.full, want.bare, want.fresh, want.unlabeled}))
		})
	}
}

func TestRejectedExpressions(t *testing.T) {
	c := newCompiler(t)
	for text, message := range map[string]string{
		`host.inventory.cpu.corez >= 8`:                              `line 1, column 19: undefined field 'corez'`,
		"true &&\n  host.inventoryy.cpu.cores >= 8":                  `line 2, column 7: undefined field 'inventoryy'`,
		`host.status.inventory.cpu.cores >= 8`:                       `undefined field 'status'`,
		`host.inventory.disks.exists(d, d.size > 1)`:                 `undefined field 'size'`,
		`hosts.name == "a"`:                                          `undeclared reference to 'hosts'`,
		`host.inventory.cpu.cores`:                                   `must be true or false, but it is of type int`,
		`host.name`:                                                  `must be true or false, but it is of type string`,
		`host.inventory.cpu.cores == "8"`:                            `no matching overload for '_==_'`,
		`host.inventory.cpu.cores >=`:                                `line 1, column 28: Syntax error`,
		`dyn(host).inventoryy == 1`:                                  `undeclared reference to 'dyn'`,
		`[host, 1][0].inventoryy == 1`:                               `line 1, column 8: expected type`,
		`type(host) == type(host)`:                                   `undeclared reference to 'type'`,
		`elemental.host{name: "a"}.name == "a"`:                      `objects can't be made here`,
		`["a"].map(a, a) == ["a"]`:                                   `undeclared reference to 'map'`,
		`host.name + host.name == "aa"`:                              `no matching overload for '_+_'`,
		`host.name.matches(host.labels.pattern)`:                     `must be a literal`,
		`host.name.matches("(")`:                                     `parsing the regular expression`,
		`host.name.matches("(a{100}){10}")`:                          `states, more than 200`,
		`host.name.matches("` + strings.Repeat("a", 257) + `")`:      `longer than 256 bytes`,
		strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200): `recursion limit`,
		`host.inventory.nics.exists(n, host.inventory.nics.exists(m, n.addresses.exists(a, a in m.addresses)))`: `could cost`,
		`host.inventory.disks.all(d, d.model.matches("^[a-z]{50}$"))`:                                           `could cost`,
		`[` + strings.Repeat("1,", 99) + `1].all(x, [` + strings.Repeat("1,", 99) + `1].all(y, x == y))`:        `could cost`,
	} {
		t.Run(text[:min(len(text), 60)], func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(c.Check(text)).To(MatchError(ContainSubstring(message)))
			s := c.Compile(t.Context(), &infrav1.HostSelector{Expression: text})
			g.Expect(s.Err()).To(MatchError(And(ContainSubstring(message), HavePrefix("compiling hostSelector.expression: "))))
			g.Expect(s.Select(newHost())).To(Equal(selector.NotSelected))
		})
	}
}

func TestLabels(t *testing.T) {
	requirement := func(op metav1.LabelSelectorOperator, values ...string) *infrav1.HostSelector {
		return &infrav1.HostSelector{MatchExpressions: []infrav1.HostSelectorRequirement{{Key: "rack", Operator: op, Values: values}}}
	}
	for name, tc := range map[string]struct {
		spec             *infrav1.HostSelector
		labelled, others bool
	}{
		"none":           {nil, true, true},
		"empty":          {&infrav1.HostSelector{}, true, true},
		"labels":         {&infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r1"}}, true, false},
		"in":             {requirement(metav1.LabelSelectorOpIn, "r1", "r2"), true, false},
		"not in":         {requirement(metav1.LabelSelectorOpNotIn, "r1"), false, true},
		"exists":         {requirement(metav1.LabelSelectorOpExists), true, false},
		"does not exist": {requirement(metav1.LabelSelectorOpDoesNotExist), false, true},
		"invalid":        {requirement("Like", "r*"), false, false},
		"both":           {&infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r1"}, Expression: `host.name == "other"`}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// A nil Compiler works too, because a Compiler only caches.
			s := (*selector.Compiler)(nil).Compile(t.Context(), tc.spec)
			g.Expect(s.Err() != nil).To(Equal(name == "invalid"))
			labelled, others := s.Select(newHost()) == selector.Selected, s.Select(newHost(unlabeled, unknown)) == selector.Selected
			g.Expect([]bool{labelled, others}).To(Equal([]bool{tc.labelled, tc.others}))
		})
	}
	g := NewWithT(t)
	g.Expect((*selector.Selector)(nil).Select(newHost())).To(Equal(selector.Selected))
	g.Expect((*selector.Selector)(nil).Err()).To(Succeed())
}

// Labels are compared first: a host with other labels is not selected, even if its
// inventory is still unknown.
func TestLabelsAreComparedBeforeTheInventory(t *testing.T) {
	g := NewWithT(t)
	s := newCompiler(t).Compile(t.Context(), &infrav1.HostSelector{
		MatchLabels: infrav1.Labels{"rack": "r2"}, Expression: `host.inventory.cpu.cores > 1`,
	})
	g.Expect(s.Select(newHost(unknown))).To(Equal(selector.NotSelected))
}

func TestExpressionsAreCompiledOnce(t *testing.T) {
	g := NewWithT(t)
	c := newCompiler(t)
	spec := &infrav1.HostSelector{Expression: `host.name == "a"`}
	first := c.Compile(t.Context(), spec)
	g.Expect(selector.SameExpression(first, c.Compile(t.Context(), spec))).To(BeTrue())
	g.Expect(c.Check(`host.`)).NotTo(Succeed())
	g.Expect(c.CacheLen()).To(Equal(2), "errors must be cached too")
	for i := range selector.MaxCached {
		g.Expect(c.Check(fmt.Sprintf(`host.inventory.cpu.cores == %d`, i))).To(Succeed())
	}
	g.Expect(c.CacheLen()).To(Equal(selector.MaxCached))
	g.Expect(selector.SameExpression(first, c.Compile(t.Context(), spec))).To(BeFalse(), "the oldest expressions must be evicted")
}

// The number of labels is not known at admission, so the cost is counted during the
// evaluation.
func TestEvaluationIsStoppedWhenItCostsTooMuch(t *testing.T) {
	g := NewWithT(t)
	s := newCompiler(t).Compile(t.Context(), &infrav1.HostSelector{
		Expression: `host.labels.all(k, !k.startsWith("x"))`,
	})
	g.Expect(s.Err()).NotTo(HaveOccurred())
	h := newHost()
	g.Expect(s.Select(h)).To(Equal(selector.Selected))
	for i := range 20_000 {
		h.Labels[fmt.Sprintf("label-%d", i)] = ""
	}
	before := s.Spent()
	g.Expect(s.Select(h)).To(Equal(selector.NotSelected))
	g.Expect(s.Spent() - before).To(BeNumerically("<", selector.MaxCost+100))
}

func TestOneDecisionIsBounded(t *testing.T) {
	g := NewWithT(t)
	expensive := newHost(crowded)
	s := newCompiler(t).Compile(t.Context(), &infrav1.HostSelector{
		Expression: `!host.inventory.nics.exists(n, n.addresses.exists(a, a.startsWith("10.3.")))`,
	})
	g.Expect(s.Select(expensive)).To(Equal(selector.Selected))
	most := int(selector.MaxTotalCost/s.Spent()) + 1
	g.Expect(most).To(BeNumerically(">", 100))
	for range most {
		s.Select(expensive)
	}
	g.Expect(s.Select(expensive)).To(Equal(selector.NotEvaluated))
	g.Expect(s.Select(newHost())).To(Equal(selector.NotEvaluated))
}

func TestEvaluationEndsWithTheContext(t *testing.T) {
	g := NewWithT(t)
	c := newCompiler(t)
	spec := &infrav1.HostSelector{Expression: `[` + strings.Repeat("1,", 499) + `1].all(x, x == 1)`}
	g.Expect(c.Compile(t.Context(), spec).Select(newHost())).To(Equal(selector.Selected))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(c.Compile(ended, spec).Select(newHost())).To(Equal(selector.NotSelected))
}

// The cost estimate at admission is never below the cost of an evaluation. Each admitted
// expression can therefore be evaluated for every host.
func TestAdmittedExpressionsCanBeEvaluated(t *testing.T) {
	c := newCompiler(t)
	for _, text := range []string{
		`!host.inventory.nics.exists(n, n.addresses.exists(a, a.startsWith("10.3.")))`,
		`host.inventory.disks.all(d, d.sizeBytes > 0 && d.rotational && d.name != "")`,
		`host.inventory.disks.filter(d, d.name.startsWith("sd")).all(d, d.sizeBytes >= 1)`,
		`!host.inventory.nics.exists(n, n.name.matches("^([a-z]|[0-9])*x$"))`,
		`host.inventory.nics.all(n, n.name.contains("eth"))`,
		`host.inventory.disks.all(d, d in host.inventory.disks)`,
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			s := c.Compile(t.Context(), &infrav1.HostSelector{Expression: text})
			g.Expect(s.Err()).NotTo(HaveOccurred())
			g.Expect(s.Select(newHost(crowded))).To(Equal(selector.Selected))
			t.Logf("costs %d", s.Spent())
		})
	}
}

func TestCompilerIsSharedByGoroutines(t *testing.T) {
	g := NewWithT(t)
	c := newCompiler(t)
	var group errgroup.Group
	shared := c.Compile(t.Context(), &infrav1.HostSelector{Expression: `host.inventory.disks.exists(d, !d.rotational)`})
	for i := range 16 {
		group.Go(func() error {
			own := c.Compile(t.Context(), &infrav1.HostSelector{Expression: fmt.Sprintf(`host.inventory.cpu.cores == %d`, i%4)})
			if shared.Select(newHost()) != selector.Selected || own.Err() != nil {
				return fmt.Errorf("goroutine %d: %w", i, own.Err())
			}
			return nil
		})
	}
	g.Expect(group.Wait()).To(Succeed())
}
