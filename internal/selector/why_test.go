package selector_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Why names the first requirement that a host does not meet, with what the host has. It is
// blank exactly if the host is selected.
func TestWhy(t *testing.T) {
	c := newCompiler(t)
	for name, tc := range map[string]struct {
		selector infrav1.HostSelector
		change   func(*infrav1.ElementalHost)
		field    selector.Field
		want     string
	}{
		"another value": {
			infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r2"}}, nil, selector.Labels,
			"wanted label rack=r2, the host has rack=r1",
		},
		"no label": {
			infrav1.HostSelector{MatchLabels: infrav1.Labels{"site": "x"}}, nil, selector.Labels,
			"wanted label site=x, the host has no label site",
		},
		"requirement": {
			infrav1.HostSelector{MatchExpressions: []infrav1.HostSelectorRequirement{{Key: "rack", Operator: metav1.LabelSelectorOpDoesNotExist}}}, nil, selector.Labels,
			"wanted label !rack, the host has rack=r1",
		},
		"second operand": {
			infrav1.HostSelector{Expression: `host.labels.rack == "r1" && host.inventory.cpu.cores >= 16 && false`}, nil, selector.Expression,
			"host.inventory.cpu.cores >= 16 is false; host.inventory.cpu.cores is 8",
		},
		"operand of ||": {
			infrav1.HostSelector{Expression: `host.inventory.cpu.cores > 8 || host.inventory.os.id == "ubuntu"`}, nil, selector.Expression,
			`host.inventory.cpu.cores > 8 || host.inventory.os.id == "ubuntu" is false; ` +
				`host.inventory.cpu.cores is 8, host.inventory.os.id is "debian"`,
		},
		"index": {
			infrav1.HostSelector{Expression: `host.labels["rack"] == "r3"`}, nil, selector.Expression,
			`host.labels["rack"] == "r3" is false; host.labels["rack"] is "r1"`,
		},
		"error": {
			infrav1.HostSelector{Expression: `host.labels.rack == "r1"`}, unlabeled, selector.Expression,
			`host.labels.rack == "r1" can't be evaluated: no such key: rack`,
		},
		"loop": {
			infrav1.HostSelector{Expression: `host.inventory.disks.exists(d, d.sizeBytes > 1000 * 1024 * 1024 * 1024)`}, nil, selector.Expression,
			"host.inventory.disks.exists(d, d.sizeBytes > 1000 * 1024 * 1024 * 1024) is false",
		},
		"what a host reports is quoted": {
			infrav1.HostSelector{Expression: `host.inventory.os.id == "x"`},
			func(h *infrav1.ElementalHost) { h.Status.Inventory.OS.ID = "\x1b[2J" }, selector.Expression,
			`host.inventory.os.id == "x" is false; host.inventory.os.id is "\x1b[2J"`,
		},
		"selected": {
			infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r1"}, Expression: "host.inventory.cpu.cores == 8"}, nil, "", "",
		},
		"invalid": {
			infrav1.HostSelector{Expression: "host.inventory.cpu.coers == 8"}, nil, "",
			"compiling hostSelector.expression: line 1, column 19: undefined field 'coers'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			if tc.change != nil {
				tc.change(h)
			}
			NewWithT(t).Expect(c.Compile(t.Context(), &tc.selector).Why(h)).To(Equal(selector.Unmet{Field: tc.field, Message: tc.want}))
		})
	}
}
