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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func resetOf(id string) state.Operation {
	return state.Operation{Operation: protocol.Operation{Type: protocol.OperationReset, ID: id}}
}

func (r *rig) resetter() *ResetRunner {
	return &ResetRunner{
		System: r.system, Documents: r.store().Documents(), Bootstraps: r, Platform: r, Commands: r, BootID: r.bootID, Log: quiet(),
	}
}

func (r *rig) recovery() *Recovery {
	return &Recovery{System: r.system, StateDir: r.stateDir(), Platform: r, Commands: r, Clock: &clock{}, Log: quiet()}
}

// runAgent runs an agent in the booted system until it ends. It returns nil if the
// operation has no result yet.
func (r *rig) runAgent(op state.Operation) *operation.Result {
	r.t.Helper()
	if r.system.Mode() == ModeRecovery {
		ctx := r.alive()
		if err := r.recovery().Run(ctx); err != nil || !errors.Is(context.Cause(ctx), errShutdown) {
			r.t.Fatalf("the recovery system ended with %v", err)
		}
		return nil
	}
	reset := r.resetter()
	begun, err := r.store().Begin(op)
	if err == nil {
		var result operation.Result
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

// reset runs agents until the operation has a result.
func (r *rig) reset(op state.Operation) operation.Result {
	r.t.Helper()
	for range 20 {
		if result := r.runAgent(op); result != nil {
			return *result
		}
	}
	r.t.Fatal("no result")
	return operation.Result{}
}

func TestResetGoesThroughRecovery(t *testing.T) {
	r := newRig(t)
	r.executed = []string{"operations/bootstrap-a"}
	before := r.store().Identity()
	result := r.reset(resetOf("r"))
	if result.State != protocol.StateSucceeded || r.reboots != 2 || r.stops != 1 || r.system.Mode() != ModeActive {
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

func TestFailedResetIsRetried(t *testing.T) {
	for name, test := range map[string]struct {
		behavior, message string
		prepare           func(*rig)
		reboots           int
	}{
		"the CLI fails": {behavior: "fail", message: "403 Forbidden", reboots: 2},
		// The CLI reports success but changes nothing: the agent tries again, then fails.
		"the CLI succeeds without a reset": {behavior: "no-op", message: "did not reset the host", reboots: 2 * maxAttempts},
		"the boot loader cannot be set":    {prepare: func(r *rig) { r.commandErr = errors.New("grubenv is full") }, message: "grubenv is full"},
		"the host does not reboot":         {prepare: func(r *rig) { r.stuck = true }, message: "not enabled"},
		"a leftover":                       {prepare: func(r *rig) { r.leftovers = []string{"interface cni0"} }, message: "interface cni0", reboots: 2},
		"unknown active system": {prepare: func(r *rig) {
			r.write("run/initramfs/elemental-state/state.yaml", "state: {}")
		}, message: "names no active system"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if test.behavior != "" {
				r.setBehavior(test.behavior)
			}
			if test.prepare != nil {
				test.prepare(r)
			}
			result := r.reset(resetOf("r"))
			if result.State != protocol.StateFailed || !strings.Contains(result.Message, test.message) || r.reboots != test.reboots {
				t.Errorf("%+v after %d reboots", result, r.reboots)
			}
			if strings.Contains(result.Message, "abc") {
				t.Errorf("the message contains a secret: %s", result.Message)
			}
			// Without the cause, the next attempt succeeds.
			r.setBehavior("succeed")
			r.commandErr, r.stuck, r.leftovers = nil, false, nil
			if r.calls() == "" {
				r.deploy("oci://registry/os:1")
			}
			if result := r.reset(resetOf("r")); result.State != protocol.StateSucceeded {
				t.Errorf("the next attempt: %+v", result)
			}
		})
	}
}

// The power is cut at each write in the active system.
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

// The agent in the recovery system is stopped while the CLI runs. The reset
// continues in the system that is booted next.
func TestInterruptedRecovery(t *testing.T) {
	r := newRig(t)
	if r.runAgent(resetOf("r")) != nil || r.system.Mode() != ModeRecovery {
		t.Fatalf("booted the %s system", r.system.Mode())
	}
	r.setBehavior("block")
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		r.await("hangs")
		stop()
	}()
	if err := r.recovery().Run(ctx); err != nil {
		t.Fatal(err)
	}
	r.setBehavior("succeed")
	for _, mode := range []Mode{ModeRecovery, ModeActive} {
		t.Run("then "+string(mode), func(t *testing.T) {
			r.boot(mode)
			if result := r.reset(resetOf("r")); result.State != protocol.StateSucceeded {
				t.Errorf("got %+v", result)
			}
		})
	}
}

// An administrator boots the recovery system. One reset has ended, and another has
// not reached the recovery system yet.
func TestRecoveryWithoutReset(t *testing.T) {
	r := newRig(t)
	if result := r.reset(resetOf("ended")); result.State != protocol.StateSucceeded {
		t.Fatal(result)
	}
	store := r.store()
	op, _ := store.Operation(protocol.OperationReset, "ended")
	op.State = protocol.StateSucceeded
	if err := store.Finish(op); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Begin(resetOf("begun")); err != nil {
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

// The CLI unmounts the OEM partition before it fails. The agent mounts the
// partition again to record the reason.
func TestFailureIsRecordedOnOEM(t *testing.T) {
	for mounted, want := range map[bool][]string{false: {"mount /oem"}, true: nil} {
		r := newRig(t)
		r.runAgent(resetOf("r"))
		r.setBehavior("fail")
		r.commands = nil
		r.write("proc/self/mountinfo", "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
		if mounted {
			r.write("proc/self/mountinfo", "1 1 8:2 / /oem rw - ext4 /dev/sda2 rw\n")
		}
		r.runAgent(resetOf("r"))
		if !slices.Equal(r.commands, want) {
			t.Errorf("mounted %t: ran %q", mounted, r.commands)
		}
	}
}
