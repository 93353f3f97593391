package agent_test

import (
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A manager that was restored from an older backup has claimed the host for a Machine that never
// ran here, and releases it again. The host runs the Node of a Machine of today.
func TestResetSparesTheNodeOfAnotherMachine(t *testing.T) {
	for name, claimed := range map[string]bool{"it learns of the claim": true, "it learns of the release only": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			r.manager.want(bootstrapOf("a"), protocol.Desired{})
			r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
			r.mu.Lock()
			r.dirty = []string{"file /etc/kubernetes/kubelet.conf"}
			r.mu.Unlock()
			other := &protocol.Operation{Type: protocol.OperationBootstrap, ID: "x", ClusterName: "c", MachineName: "former"}
			if claimed {
				r.manager.want(other, protocol.Desired{})
				r.manager.await(t, "the host is not bootstrapped again", ended("x", protocol.StateFailed))
			}
			reset := *other
			reset.Type, reset.ID = protocol.OperationReset, "y"
			r.manager.want(&reset, protocol.Desired{})
			r.manager.await(t, "the reset is refused", ended("y", protocol.StateFailed))
			if message := r.manager.outcome("y").Message; !strings.Contains(message, "the Node of Machine m of Cluster c, and never one of Machine former") {
				t.Errorf("message is %q", message)
			}
			// The host is not kept from doing other things.
			r.manager.want(nil, protocol.Desired{})
			r.manager.await(t, "the host knows that no reset is wanted", taken)
			own := *bootstrapOf("z")
			own.Type = protocol.OperationReset
			if r.reboots != 0 || r.undone != 0 {
				t.Fatalf("rebooted %d times, undone %d times", r.reboots, r.undone)
			}
			r.manager.want(&own, protocol.Desired{})
			r.manager.await(t, "the Machine of the Node resets it", ended("z", protocol.StateSucceeded))
		})
	}
}
