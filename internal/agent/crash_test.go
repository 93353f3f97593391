package agent_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// runUntilEnded starts the agent until the manager knows the operation's result.
// In the first two processes the disk fails at the given write.
func (r *rig) runUntilEnded(t *testing.T, id string, step int, after bool) {
	t.Helper()
	for life := range 3 {
		if life == 2 {
			step = -1
		}
		r.disk = r.disk.reborn(step, after)
		if r.live(t, id) {
			return
		}
	}
	t.Fatal("the operation has no result after a process without a crash")
}

// live runs one process of the agent and reports whether the manager knows the
// operation's result.
func (r *rig) live(t *testing.T, id string) bool {
	t.Helper()
	a, err := r.agent()
	if err != nil {
		if errors.Is(err, errDead) {
			return false
		}
		t.Fatalf("the state left by a crash cannot be used: %v", err)
	}
	result := make(chan error, 1)
	ctx, cancel := contextWithCancel(t)
	defer cancel()
	go func() { result <- a.Run(ctx) }()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			r.manager.mu.Lock()
			final, changed := r.manager.operations[id].State.Final(), r.manager.changed
			r.manager.mu.Unlock()
			if final {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	select {
	case <-r.disk.dead:
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("the agent neither crashed nor finished")
	}
	cancel()
	if err := <-result; err != nil && !errors.Is(err, errDead) {
		t.Fatalf("ended with %v", err)
	}
	<-over
	r.manager.hangUp(t)
	return r.manager.heard(id).Final()
}

// everyCrash calls test for a crash at every write, before and after the write
// takes effect.
func everyCrash(t *testing.T, most int, test func(t *testing.T, step int, after bool)) {
	for step := 1; step <= most; step++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d writes, after=%t", step, after), func(t *testing.T) { test(t, step, after) })
		}
	}
}

func TestBootstrapSurvivesEveryCrash(t *testing.T) {
	everyCrash(t, 17, func(t *testing.T, step int, after bool) {
		r := newRig(t)
		r.manager.want(bootstrapOf("a"), protocol.Desired{Hostname: "node-1", ProviderID: "elemental://1"})
		r.runUntilEnded(t, "a", step, after)
		// A script that may have begun is not run again.
		ran, state := r.scripts["operations/bootstrap-a"], r.manager.heard("a")
		if (ran != 1 || state != protocol.StateSucceeded) && (ran != 0 || state != protocol.StateFailed) {
			t.Errorf("the script ran %d times, and the bootstrap %s", ran, state)
		}
		if r.manager.enrolments < 1 || r.manager.key == "" {
			t.Error("not enrolled")
		}
	})
}

func TestResetSurvivesEveryCrash(t *testing.T) {
	everyCrash(t, 14, func(t *testing.T, step int, after bool) {
		r := newRig(t)
		stop := r.start()
		r.manager.want(bootstrapOf("a"), protocol.Desired{})
		r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		r.manager.want(resetOf("b"), protocol.Desired{})
		r.runUntilEnded(t, "b", step, after)
		if state := r.manager.heard("b"); state != protocol.StateSucceeded || len(r.dirty) > 0 || r.undone == 0 {
			t.Errorf("not clean: %v, undone %d times", r.dirty, r.undone)
		}
		if r.scripts["operations/bootstrap-a"] != 1 {
			t.Errorf("scripts ran: %v", r.scripts)
		}
	})
}
