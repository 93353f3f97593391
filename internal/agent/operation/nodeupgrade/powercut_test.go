package nodeupgrade_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// everyCut tries a cut at each operation, which takes minutes.
var everyCut = flag.Bool("every-cut", false, "cut upgrades short at each operation instead of a sample")

// How many operations lie between two cuts of a sample. They have no divisor in common with
// what repeats in an upgrade.
const (
	sampled      = 29
	sampledShort = 97
)

func stride() int {
	switch {
	case *everyCut:
		return 1
	case testing.Short():
		return sampledShort
	default:
		return sampled
	}
}

// An upgrade that is cut short at any operation, by the power or by a kill of the agent,
// ends at the new version.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	for i, role := range roles() {
		for _, outlives := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%t", role, outlives), func(t *testing.T) {
				t.Parallel()
				whole := newMachine(t, role, 1)
				_, operations, err := whole.live(0)
				if err != nil {
					t.Fatal(err)
				}
				for dieAt := 1 + i; dieAt <= operations; dieAt += stride() {
					m := newMachine(t, role, uint64(dieAt))
					m.outlives = outlives
					m.cutAt(dieAt)
					if t.Failed() {
						t.Fatalf("after a cut at operation %d of %d, with the steps %q", dieAt, operations, m.progress)
					}
				}
			})
		}
	}
}

// cutAt runs an upgrade that is cut at an operation, then at a random one or not at all.
func (m *machine) cutAt(dieAt int) {
	m.t.Helper()
	second := 0
	if m.disk.Random.IntN(2) == 0 {
		second = 1 + m.disk.Random.IntN(60)
	}
	for _, at := range []int{dieAt, second, 0} {
		result, _, err := m.live(at)
		if result == nil {
			if !m.life.Dead {
				m.t.Fatalf("no result without a cut: %v", err)
			}
			if !m.outlives {
				m.boot()
			}
			continue
		}
		if result.State != protocol.StateSucceeded {
			m.t.Fatalf("got %+v", *result)
		}
		m.expectServing(newVersion, newVersion)
		m.expectCheckpoint()
		return
	}
	m.t.Fatal("there is no result")
}

// A new version that does not work is put back, wherever the upgrade is cut short.
func TestPowerCutsOfFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role         protocol.UpgradeRole
		crashing     string
		outcome      protocol.UpgradeOutcome
		controlPlane string
		// serverMayStay is true if the new API server has served, and only kubeadm's own way
		// back puts back the old one. If the power is cut during that, in the last attempt, the
		// new one stays.
		serverMayStay bool
	}{
		"a kubelet of a worker":             {protocol.UpgradeWorker, newVersion, protocol.UpgradeRolledBack, "", false},
		"a kubelet of a control plane":      {protocol.UpgradeControlPlane, newVersion, protocol.UpgradePartlyDone, newVersion, false},
		"an API server":                     {protocol.UpgradeFirstControlPlane, image("kube-apiserver", newVersion), protocol.UpgradeRolledBack, oldVersion, false},
		"etcd":                              {protocol.UpgradeControlPlane, image("etcd", newVersion), protocol.UpgradeRolledBack, oldVersion, false},
		"a scheduler, after the API server": {protocol.UpgradeControlPlane, image("kube-scheduler", newVersion), protocol.UpgradeRolledBack, oldVersion, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := newMachine(t, test.role, 1)
			whole.crash(test.crashing)
			_, operations, err := whole.live(0)
			if err != nil {
				t.Fatal(err)
			}
			for dieAt := 1; dieAt <= operations; dieAt += stride() {
				m := newMachine(t, test.role, uint64(dieAt))
				m.crash(test.crashing)
				if _, _, err := m.live(dieAt); m.life.Dead {
					m.boot()
				} else if err != nil {
					t.Fatal(err)
				}
				result := m.finish()
				if test.serverMayStay && m.serverVersion() == newVersion && m.isPartlyDone(result) {
					continue
				}
				if result.State != protocol.StateFailed || protocol.UpgradeOutcomeOf(result.Message) != test.outcome {
					t.Errorf("got %+v", result)
				}
				m.expectServing(oldVersion, test.controlPlane)
				if t.Failed() {
					t.Fatalf("after a cut at operation %d of %d, with the steps %q", dieAt, operations, m.progress)
				}
			}
		})
	}
}

// isPartlyDone reports whether an upgrade has left the new API server with everything else as
// it was, and says so.
func (m *machine) isPartlyDone(result operation.Result) bool {
	return protocol.UpgradeOutcomeOf(result.Message) == protocol.UpgradePartlyDone && m.kubeletVersion() == oldVersion &&
		m.read(staticpods.Path("kube-scheduler")) == manifest("kube-scheduler", oldVersion) && m.filter.table == ""
}
