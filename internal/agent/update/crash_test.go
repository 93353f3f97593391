package update_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// After a crash at any point of an update the host has an agent that starts, and
// finally the right version.
func TestUpdateSurvivesEveryCrash(t *testing.T) {
	for name, test := range map[string]struct {
		release, final string
		state          protocol.OperationState
	}{
		"a good release":                   {release: good, final: good, state: protocol.StateSucceeded},
		"a release that exits":             {release: broken, final: present, state: protocol.StateFailed},
		"a release that reaches no server": {release: deaf, final: present, state: protocol.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			undisturbed := newHost(t, test.release)
			if report, err := undisturbed.service(releaseOf(test.release)); err != nil || report.State != test.state {
				t.Fatalf("without a crash: %+v, %v", report, err)
			}
			crashes := 0
			for dieAt := 1; dieAt <= undisturbed.disk.changes; dieAt++ {
				for variant := range uint64(16) {
					powerCut, after := variant%2 == 1, variant/2%2 == 1
					random := rand.New(rand.NewPCG(uint64(dieAt), variant))
					h := newHost(t, test.release)
					h.disk.dieAt, h.disk.after = dieAt, after
					if got := h.crashing(powerCut, random, releaseOf(test.release)); got == nil || got.State != test.state {
						t.Errorf("death at change %d (after=%t, power cut=%t, variant %d): reports %+v", dieAt, after, powerCut, variant, got)
					}
					if got := h.disk.content(program); got != test.final {
						t.Errorf("death at change %d (after=%t, power cut=%t, variant %d): runs %q", dieAt, after, powerCut, variant, got)
					}
					if left := h.disk.content(program + update.PreviousSuffix); left != "" {
						t.Errorf("death at change %d (after=%t, power cut=%t, variant %d): left %q", dieAt, after, powerCut, variant, left)
					}
					if h.starts[broken] > 2*(update.MaxStarts+1) {
						t.Errorf("death at change %d: started what is broken %d times", dieAt, h.starts[broken])
					}
					crashes++
				}
			}
			t.Logf("%d crashes", crashes)
		})
	}
}

// crashing runs the service on a disk that crashes, and in one of three cases crashes a
// second time.
func (h *host) crashing(powerCut bool, random *rand.Rand, pinned *protocol.AgentRelease) *protocol.AgentUpdate {
	h.t.Helper()
	for death := range 4 {
		report, err := h.service(pinned)
		if err == nil {
			return report
		}
		if !errors.Is(err, errDead) {
			h.t.Fatal(err)
		}
		h.disk.revive(powerCut, random)
		if death == 0 && random.IntN(3) == 0 {
			h.disk.dieAt, h.disk.after = h.disk.changes+1+random.IntN(10), random.IntN(2) == 0
		}
	}
	h.t.Fatalf("the host crashes repeatedly at change %d", h.disk.changes)
	return nil
}
