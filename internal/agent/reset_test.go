package agent_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestResetOfAnUnusedHostIsQuick(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.want(resetOf("b"), protocol.Desired{})
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	if r.reboots != 0 {
		t.Errorf("rebooted %d times", r.reboots)
	}
}

func TestResetGoesOnAfterTheReboot(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	down := make(chan struct{})
	r.mu.Lock()
	r.goesDown = func() { close(down) }
	r.mu.Unlock()
	r.manager.want(resetOf("b"), protocol.Desired{})
	<-down
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if r.undone != 0 || r.manager.heard("b").Final() {
		t.Fatal("the reset undid the bootstrap before the reboot")
	}
	r.bootID = "boot-2"
	r.start()
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	r.manager.await(t, "the host is clean", func(m *manager) bool { return m.cleanliness.Clean })
	if r.reboots != 1 || r.undone != 1 {
		t.Errorf("rebooted %d times, undone %d times", r.reboots, r.undone)
	}
	// The host can be used again.
	r.manager.want(bootstrapOf("c"), protocol.Desired{})
	r.manager.await(t, "the next bootstrap succeeded", ended("c", protocol.StateSucceeded))
}

// Other reports may be sent while the host is observed after an operation. None of them says
// that the reset has succeeded before one says that the host is clean.
func TestReportsTheResultWithTheStateAfterIt(t *testing.T) {
	r := newRig(t)
	r.dirty = []string{"file /etc/kubernetes/kubelet.conf"}
	r.start()
	r.manager.await(t, "the manager knows all facts", full)
	r.manager.await(t, "a long poll is open", taken)
	observing, observed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.mu.Lock()
	r.examined = func() {
		once.Do(func() {
			close(observing)
			<-observed
		})
	}
	r.mu.Unlock()
	r.manager.want(resetOf("b"), protocol.Desired{})
	<-observing
	r.changeAddress(t, "192.0.2.9")
	r.manager.await(t, "the new address is reported", hasReported("192.0.2.9"))
	close(observed)
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	isClean := false
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	for _, report := range r.manager.reports {
		if report.Cleanliness != nil {
			isClean = report.Cleanliness.Clean
		}
		for _, op := range report.Operations {
			if op.State == protocol.StateSucceeded && !isClean {
				t.Errorf("the host is reset and not clean: %+v", report)
			}
		}
	}
}

func TestFailedResetIsReportedAndTriedAgain(t *testing.T) {
	r := newRig(t)
	r.cannotClean = []string{"interface cni0"}
	r.dirty = []string{"interface cni0"}
	r.start()
	r.manager.want(resetOf("b"), protocol.Desired{})
	r.manager.await(t, "the reset failed", ended("b", protocol.StateFailed))
	if message := r.manager.outcome("b").Message; !strings.Contains(message, "cni0") || !strings.Contains(message, "without a reboot") {
		t.Errorf("message is %q", message)
	}
	r.mu.Lock()
	r.cannotClean = nil
	r.mu.Unlock()
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
}

func TestResetEndsABootstrapThatHangs(t *testing.T) {
	r := newRig(t)
	r.hold = make(chan struct{})
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	r.manager.want(resetOf("b"), protocol.Desired{})
	r.manager.await(t, "the bootstrap failed", ended("a", protocol.StateFailed))
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	if r.aborted != 1 || r.undone != 1 {
		t.Errorf("aborted %d times, undone %d times", r.aborted, r.undone)
	}
}

// Only a reboot removes the changes of a node in the kernel.
func TestResetRetriesTheReboot(t *testing.T) {
	r := newRig(t)
	r.cannotClean = []string{"cgroup kubepods"}
	r.dirty = []string{"cgroup kubepods"}
	stop := r.start()
	r.manager.want(resetOf("b"), protocol.Desired{})
	r.manager.await(t, "the agent tried to reboot three times", func(*manager) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.reboots >= 3
	})
	down := make(chan struct{})
	r.mu.Lock()
	r.goesDown = func() { close(down) }
	r.mu.Unlock()
	<-down
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.cannotClean = nil
	r.bootID = "boot-2"
	r.start()
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	if message := r.manager.outcome("b").Message; message != "" {
		t.Errorf("message is %q", message)
	}
}
