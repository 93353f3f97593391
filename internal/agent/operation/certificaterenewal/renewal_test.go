package certificaterenewal_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// soon is when the former certificates of most tests end.
func soon() time.Time { return time.Now().Add(20 * 24 * time.Hour).Truncate(time.Second) }

func TestRenewal(t *testing.T) {
	t.Parallel()
	ends := soon()
	m := newMachine(t, 1, newCredentials(t, ends))
	result, _, err := m.live(0)
	want := "the certificates end at " + ends.AddDate(1, 0, 0).UTC().Format("2006-01-02T15:04:05Z")
	if err != nil || result.State != protocol.StateSucceeded || result.Message != want {
		t.Fatalf("got %+v, %v", result, err)
	}
	m.expect(renewed)
	if !m.hasSteps("check", "checkpoint", "renew", "restart", "gate", "finish") {
		t.Errorf("the steps were %q", m.progress)
	}
	if !slices.Equal(m.restarts, components()) {
		t.Errorf("the programs restarted in the order %q", m.restarts)
	}
}

// A control plane that is not well because its certificates have ended gets new ones.
func TestRenewalAfterTheEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, newCredentials(t, time.Now().Add(-time.Hour)))
	m.isBroken[former] = true
	result, _, err := m.live(0)
	if err != nil || result.State != protocol.StateSucceeded {
		t.Fatalf("got %+v, %v", result, err)
	}
	m.expect(renewed)
}

// A host that can't renew its certificates stays as it is, and restarts nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	files := newCredentials(t, soon())
	for name, test := range map[string]struct {
		change  func(m *machine)
		message string
	}{
		"no kubeadm":   {func(m *machine) { m.kubeadmErr = errors.New("not found") }, "kubeadm does not run on this host"},
		"a full disk":  {func(m *machine) { m.free = 10 << 20 }, "make room"},
		"not well":     {func(m *machine) { m.isBroken[former] = true }, "no certificate of it has ended"},
		"no authority": {func(m *machine) { _ = os.Remove(filepath.Join(m.root, kubernetes, "pki/ca.key")) }, "an authority of the cluster is not on this host"},
		"a worker": {func(m *machine) {
			_ = os.Remove(filepath.Join(m.root, staticpods.Path("kube-apiserver")))
		}, "looking for the control plane"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 1, files)
			test.change(m)
			result, _, err := m.live(0)
			if err != nil || result.State != protocol.StateFailed || !strings.Contains(result.Message, test.message) ||
				!strings.HasPrefix(result.Message, protocol.RenewalChangedNothing.Message("")) {
				t.Errorf("got %+v, %v", result, err)
			}
			if len(m.restarts) > 0 || m.read("pki/apiserver.crt") != files[former]["pki/apiserver.crt"] {
				t.Errorf("restarted %q", m.restarts)
			}
		})
	}
}

func TestWayBack(t *testing.T) {
	t.Parallel()
	files := newCredentials(t, soon())
	for name, test := range map[string]struct {
		change  func(m *machine)
		step    string
		outcome protocol.RenewalOutcome
	}{
		"the new ones don't work": {func(m *machine) { m.isBroken[renewed] = true }, "gate", protocol.RenewalRolledBack},
		"kubeadm does nothing":    {func(m *machine) { m.isIdle = true }, "renew", protocol.RenewalRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 1, files)
			test.change(m)
			result, _, err := m.live(0)
			if err != nil || result.State != protocol.StateFailed || result.Step != test.step || !strings.HasPrefix(result.Message, test.outcome.Message("")) {
				t.Errorf("got %+v, %v", result, err)
			}
			m.expect(former)
		})
	}
}

// If the former certificates don't work either, a person finds them in the checkpoint.
func TestBroken(t *testing.T) {
	t.Parallel()
	files := newCredentials(t, soon())
	m := newMachine(t, 1, files)
	m.breaksAtRestart = true
	result, _, err := m.live(0)
	if err != nil || result.State != protocol.StateFailed || !strings.HasPrefix(result.Message, protocol.RenewalLeftBroken.Message("")) {
		t.Fatalf("got %+v, %v", result, err)
	}
	kept, err := filepath.Glob(filepath.Join(m.state, "checkpoints/*/files/etc/kubernetes/pki/apiserver.key"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("got %q, %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
}

// A renewal that the manager withdraws before it has changed anything leaves nothing behind.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, newCredentials(t, soon()))
	m.plan = state.Plan{}
	if _, _, err := m.live(0); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("got %v", err)
	}
	m.expect(former)
}

// The manager may withdraw it during a step that fails.
func TestWithdrawnDuringAFailure(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, newCredentials(t, soon()))
	m.disk.Full = func(path string) bool {
		isKept := strings.Contains(path, "/checkpoints/")
		if isKept {
			m.plan = state.Plan{}
		}
		return isKept
	}
	if _, _, err := m.live(0); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("got %v", err)
	}
	m.expect(former)
	for _, folder := range []string{"operations", "checkpoints"} {
		if found, _ := os.ReadDir(filepath.Join(m.state, folder)); len(found) > 0 {
			t.Errorf("%q are left in %s", found, folder)
		}
	}
}

// stride is how many operations lie between two cuts.
func stride() int {
	if testing.Short() {
		return 61
	}
	return 1
}

// A power cut, or the death of the agent, at any operation leads to the new certificates, or back to
// the former ones if the new ones do not work.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	files := newCredentials(t, soon())
	for _, works := range []bool{true, false} {
		want := map[bool]int{true: renewed, false: former}[works]
		whole := newMachine(t, 1, files)
		whole.isBroken[renewed] = !works
		_, operations, err := whole.live(0)
		if err != nil {
			t.Fatal(err)
		}
		for dieAt := 1; dieAt <= operations; dieAt += stride() {
			for _, isPower := range []bool{true, false} {
				m := newMachine(t, uint64(dieAt), files)
				m.isBroken[renewed] = !works
				for _, at := range []int{dieAt, m.disk.Random.IntN(operations), 0} {
					result, _, err := m.live(at)
					if m.life.Dead {
						if isPower {
							m.boot()
						}
						continue
					}
					state := map[bool]protocol.OperationState{true: protocol.StateSucceeded, false: protocol.StateFailed}[works]
					if err != nil || result.State != state {
						t.Fatalf("after a cut at operation %d of %d, in the steps %q: got %+v, %v", dieAt, operations, m.progress, result, err)
					}
					break
				}
				if m.expect(want); t.Failed() {
					t.Fatalf("after a cut at operation %d of %d, in the steps %q", dieAt, operations, m.progress)
				}
			}
		}
		t.Logf("%d operations, new certificates work: %t", operations, works)
	}
}
