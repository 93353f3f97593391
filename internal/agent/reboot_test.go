package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/reboot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func rebootOf(id string) *protocol.Operation {
	return &protocol.Operation{Type: protocol.OperationReboot, ID: id}
}

// kill ends the agent process that uses the disk.
func (d *disk) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isDead() {
		close(d.dead)
	}
}

// A reboot operation reboots a node once and changes nothing else.
func TestRebootsANodeOnce(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	node := protocol.Desired{ProviderID: "elemental://1"}
	r.manager.want(bootstrapOf("a"), node)
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	down := make(chan struct{})
	r.mu.Lock()
	r.goesDown = func() { close(down) }
	r.mu.Unlock()
	r.manager.want(rebootOf("b"), node)
	<-down
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if r.manager.heard("b").Final() {
		t.Fatal("the reboot ended before the host came up again")
	}
	r.bootID = "boot-2"
	r.start()
	r.manager.await(t, "the reboot succeeded", ended("b", protocol.StateSucceeded))
	r.mu.Lock()
	r.goesDown = nil
	r.mu.Unlock()
	// The plan names the finished bootstrap again.
	r.manager.want(bootstrapOf("a"), node)
	r.manager.want(rebootOf("b"), node)
	r.manager.want(bootstrapOf("a"), node)
	r.manager.want(resetOf("c"), protocol.Desired{})
	r.manager.await(t, "the reset succeeded", ended("c", protocol.StateSucceeded))
	if r.scripts["operations/bootstrap-a"] != 1 {
		t.Errorf("scripts ran: %v", r.scripts)
	}
	// One reboot is from the reboot operation; the reset asks at most twice.
	if r.reboots > 3 {
		t.Errorf("rebooted %d times", r.reboots)
	}
}

func TestRebootWaitsForTheBootstrap(t *testing.T) {
	r := newRig(t)
	r.hold = make(chan struct{})
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	r.manager.want(rebootOf("b"), protocol.Desired{})
	r.manager.await(t, "the plan was taken", taken)
	r.mu.Lock()
	reboots := r.reboots
	r.mu.Unlock()
	if reboots != 0 {
		t.Error("rebooted during a bootstrap")
	}
	close(r.hold)
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	r.manager.await(t, "the reboot was tried", ended("b", protocol.StateFailed))
}

func TestRebootFailsAfterMaxAttempts(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.want(rebootOf("b"), protocol.Desired{})
	r.manager.await(t, "the reboot failed", ended("b", protocol.StateFailed))
	if r.reboots != reboot.MaxAttempts {
		t.Errorf("asked for a reboot %d times", r.reboots)
	}
	if message := r.manager.outcome("b").Message; !strings.Contains(message, "3 times") || !strings.Contains(message, "this host cannot reboot") {
		t.Errorf("message is %q", message)
	}
}

// If the agent restarts repeatedly and the host never reboots, the agent gives up.
func TestRebootFailsAfterRestarts(t *testing.T) {
	r := newRig(t)
	r.manager.want(rebootOf("b"), protocol.Desired{})
	r.goesDown = func() { r.disk.kill() }
	for range reboot.MaxAttempts {
		r.disk = r.disk.reborn(-1, false)
		if r.live(t, "b") {
			t.Fatal("the reboot ended although the host stayed up")
		}
	}
	r.disk = r.disk.reborn(-1, false)
	r.start()
	r.manager.await(t, "the reboot failed", ended("b", protocol.StateFailed))
	if message := r.manager.outcome("b").Message; r.reboots != reboot.MaxAttempts || !strings.Contains(message, "without a reboot") {
		t.Errorf("asked %d times, message is %q", r.reboots, message)
	}
}

// After any crash the host reboots once for the operation. A power cut counts as the
// reboot.
func TestRebootSurvivesEveryCrash(t *testing.T) {
	for _, powerCut := range []bool{false, true} {
		t.Run(fmt.Sprintf("power cut=%t", powerCut), func(t *testing.T) {
			everyCrash(t, 10, func(t *testing.T, step int, after bool) {
				r := newRig(t)
				r.manager.want(rebootOf("b"), protocol.Desired{})
				boots := 1
				r.goesDown = func() {
					boots++
					r.disk.kill()
				}
				for life := 0; ; life++ {
					if life == 5 {
						t.Fatal("the reboot has no result after processes without a crash")
					}
					if life == 2 {
						step = -1
					}
					r.disk = r.disk.reborn(step, after)
					r.bootID = fmt.Sprintf("boot-%d", boots)
					if r.live(t, "b") {
						break
					}
					if powerCut {
						boots++
					}
				}
				if r.reboots > 1 || r.reboots == 0 && !powerCut {
					t.Errorf("rebooted %d times", r.reboots)
				}
			})
		})
	}
}
