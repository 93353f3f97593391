package elemental

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func resetOf(id string) state.Operation {
	return state.Operation{Operation: protocol.Operation{Type: protocol.OperationReset, ID: id}}
}

func (r *rig) resetter() *Reset {
	return &Reset{
		System: r.system, Store: r.store(), Undoer: r, Observer: r, Node: r, Host: r, Commands: r, BootID: r.bootID, Log: quiet(),
	}
}

func (r *rig) recovery() *Recovery {
	return &Recovery{System: r.system, StateDir: r.stateDir(), Host: r, Commands: r, Clock: &clock{}, Log: quiet()}
}

// life is one life of the agent, in whatever system was booted. It returns nil
// while there is no result.
func (r *rig) life(op state.Operation) *agent.Result {
	r.t.Helper()
	if r.system.Mode() == ModeRecovery {
		ctx := r.alive()
		if err := r.recovery().Run(ctx); err != nil || !errors.Is(context.Cause(ctx), errGoneDown) {
			r.t.Fatalf("the recovery system ended with %v", err)
		}
		return nil
	}
	reset := r.resetter()
	begun, err := reset.Store.Begin(op)
	if err == nil {
		var result agent.Result
		if result, err = reset.Run(r.alive(), begun, func(string) {}); err == nil {
			return &result
		}
	}
	if errors.Is(err, errPower) {
		r.dieAt = 0
		r.boot(r.system.Mode())
	}
	return nil
}

func (r *rig) reset(op state.Operation) agent.Result {
	r.t.Helper()
	for range 20 {
		if result := r.life(op); result != nil {
			return *result
		}
	}
	r.t.Fatal("no result")
	return agent.Result{}
}

func TestResetGoesThroughRecovery(t *testing.T) {
	r := newRig(t)
	r.executed = []string{"operations/bootstrap-a"}
	before := r.store().Identity()
	result := r.reset(resetOf("r"))
	if result.State != protocol.StateSucceeded || r.reboots != 2 || r.stopped != 1 || r.system.Mode() != ModeActive {
		t.Errorf("%+v after %d reboots", result, r.reboots)
	}
	if r.calls() != "reset --reset-persistent\n" {
		t.Errorf("called\n%s", r.calls())
	}
	if len(r.commands) != 1 || !strings.HasSuffix(r.commands[0], "editenv /oem/grubenv set next_entry=recovery") {
		t.Errorf("ran %q", r.commands)
	}
	if after := r.store().Identity(); after.Key != before.Key || after.Key == "" {
		t.Error("the host lost its key")
	}
	if !slices.Equal(r.undone, r.executed) {
		t.Errorf("undone: %v", r.undone)
	}
}

func TestCleanHostIsNotReset(t *testing.T) {
	r := newRig(t)
	if err := os.RemoveAll(filepath.Join(r.root, "persistent")); err != nil {
		t.Fatal(err)
	}
	if result := r.reset(resetOf("r")); result.State != protocol.StateSucceeded || r.reboots != 0 || r.calls() != "" {
		t.Errorf("%+v after %d reboots", result, r.reboots)
	}
}

func TestFailedResetSaysWhyAndIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		plays, message string
		prepare        func(*rig)
		reboots        int
	}{
		"the CLI fails": {plays: "fail", message: "403 Forbidden", reboots: 2},
		// Its success changed nothing: the host is sent there again, and then given up.
		"the CLI says it did and did not": {plays: "liar", message: "did not reset the host", reboots: 2 * maxAttempts},
		"the boot loader can't be told":   {prepare: func(r *rig) { r.broken = errors.New("grubenv is full") }, message: "grubenv is full"},
		"the host does not reboot":        {prepare: func(r *rig) { r.stuck = true }, message: "not enabled"},
		"something is left":               {prepare: func(r *rig) { r.leftovers = []string{"interface cni0"} }, message: "interface cni0", reboots: 2},
		"nobody knows what ran before, nor would after": {prepare: func(r *rig) {
			r.write("run/initramfs/elemental-state/state.yaml", "state: {}")
		}, message: "names no active system"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if test.plays != "" {
				r.plays(test.plays)
			}
			if test.prepare != nil {
				test.prepare(r)
			}
			result := r.reset(resetOf("r"))
			if result.State != protocol.StateFailed || !strings.Contains(result.Message, test.message) || r.reboots != test.reboots {
				t.Errorf("%+v after %d reboots", result, r.reboots)
			}
			if strings.Contains(result.Message, "abc") {
				t.Errorf("tells a secret: %s", result.Message)
			}
			// Once the cause is gone the next attempt succeeds.
			r.plays("well")
			r.broken, r.stuck, r.leftovers = nil, false, nil
			if r.calls() == "" {
				r.deployed("oci://registry/os:1")
			}
			if result := r.reset(resetOf("r")); result.State != protocol.StateSucceeded {
				t.Errorf("the next attempt: %+v", result)
			}
		})
	}
}

// TestResetSurvivesEveryPowerCut cuts the power at every write in the active system.
func TestResetSurvivesEveryPowerCut(t *testing.T) {
	for step := 1; step <= 7; step++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, after=%t", step, after), func(t *testing.T) {
				r := newRig(t)
				r.dieAt, r.after = step, after
				if result := r.reset(resetOf("r")); result.State != protocol.StateSucceeded {
					t.Errorf("%+v after %d reboots", result, r.reboots)
				}
				if strings.Count(r.calls(), "reset --") != 1 {
					t.Errorf("called\n%s", r.calls())
				}
			})
		}
	}
}

// TestRecoveryIsCutShort ends the recovery system while the CLI runs: it goes on
// where it is booted next.
func TestRecoveryIsCutShort(t *testing.T) {
	r := newRig(t)
	if r.life(resetOf("r")) != nil || r.system.Mode() != ModeRecovery {
		t.Fatalf("booted the %s system", r.system.Mode())
	}
	r.plays("cut")
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		r.await("hangs")
		stop()
	}()
	if err := r.recovery().Run(ctx); err != nil {
		t.Fatal(err)
	}
	r.plays("well")
	for _, mode := range []Mode{ModeRecovery, ModeActive} {
		t.Run("then "+string(mode), func(t *testing.T) {
			r.boot(mode)
			if result := r.reset(resetOf("r")); result.State != protocol.StateSucceeded {
				t.Errorf("got %+v", result)
			}
		})
	}
}

// TestRecoveryBootedByHandDoesNothing: also when an earlier reset is over.
func TestRecoveryBootedByHandDoesNothing(t *testing.T) {
	r := newRig(t)
	if result := r.reset(resetOf("over")); result.State != protocol.StateSucceeded {
		t.Fatal(result)
	}
	store := r.store()
	op, _ := store.Operation(protocol.OperationReset, "over")
	op.State = protocol.StateSucceeded
	if err := store.Finish(op); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Begin(resetOf("begun, and not yet so far")); err != nil {
		t.Fatal(err)
	}
	r.boot(ModeRecovery)
	before, reboots := r.calls(), r.reboots
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.recovery().Run(ctx); err != nil || r.calls() != before || r.reboots != reboots {
		t.Errorf("called\n%s, %v", r.calls(), err)
	}
}

// TestOEMIsMountedAgainForTheReason: the CLI unmounts it before it can fail.
func TestOEMIsMountedAgainForTheReason(t *testing.T) {
	for mounted, want := range map[bool][]string{false: {"mount /oem"}, true: nil} {
		r := newRig(t)
		r.life(resetOf("r"))
		r.plays("fail")
		r.commands = nil
		r.write("proc/self/mountinfo", "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
		if mounted {
			r.write("proc/self/mountinfo", "1 1 8:2 / /oem rw - ext4 /dev/sda2 rw\n")
		}
		r.life(resetOf("r"))
		if !slices.Equal(r.commands, want) {
			t.Errorf("mounted %t: ran %q", mounted, r.commands)
		}
	}
}
