package selector_test

import (
	"context"
	"testing"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// FuzzExpression searches for expressions that panic, do not end, or cost more than the
// limit.
func FuzzExpression(f *testing.F) {
	// timeout is much longer than the most expensive admitted expression takes.
	const timeout = time.Minute
	for _, seed := range []string{
		`host.inventory.cpu.cores >= 8 && host.labels["rack"] == "r1"`,
		`host.inventory.disks.exists(d, !d.rotational && d.sizeBytes >= 400 * 1024 * 1024 * 1024)`,
		`host.inventory.nics.exists(n, n.addresses.exists(a, a.startsWith("10.1.")))`,
		`host.inventory.disks.filter(d, d.name.matches("^nvme[0-9]+n1$")).size() >= 2`,
		`has(host.inventory.os.versionID) ? int(host.inventory.os.versionID) > 11 : double("1e3") > 2.0`,
		`host == host && host.inventory.disks[0] in host.inventory.disks && -1 % 2 != 3 / 0`,
		`{"a": [1], "b": [2]}["a"].exists_one(x, x == 1) || [[1], [2]] == [[3]] + [[4]]`,
		`"\u00e9" < "\x7f" || b"a" == b"a" || 1u < 2u || null == null`,
	} {
		f.Add(seed)
	}
	c := newCompiler(f)
	hosts := []*infrav1.ElementalHost{newHost(), newHost(crowded), newHost(empty), newHost(unlabeled)}
	f.Fuzz(func(t *testing.T, text string) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		if c.Check(text) == nil {
			for _, h := range hosts {
				s := c.Compile(ctx, &infrav1.HostSelector{Expression: text})
				if first, second := s.Select(h), s.Select(h); first != second {
					t.Errorf("%d first, %d then", first, second)
				}
				// One step may go beyond the limit before it is counted.
				if s.Spent() > 2*(selector.MaxCost+10_000) {
					t.Errorf("costs %d", s.Spent())
				}
			}
		}
		if ctx.Err() != nil {
			t.Errorf("takes more than %s", timeout)
		}
	})
}
