package agent_test

import (
	"maps"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The Node gets the plan's labels after the bootstrap, when they change, and after a restart of the
// agent, which does not know what the Node has.
func TestLabelsOfTheNode(t *testing.T) {
	r := newRig(t)
	r.labelled = make(chan map[string]string)
	// before are the labels that were set last. The agent may set them once more: a signal that
	// comes before it has recorded a change makes that change due again.
	var before map[string]string
	await := func(what string, want map[string]string) {
		t.Helper()
		for limit := time.After(time.Minute); ; {
			select {
			case got := <-r.labelled:
				if maps.Equal(got, want) {
					before = want
					return
				}
				if !maps.Equal(got, before) {
					t.Fatalf("%s: set %v, want %v", what, got, want)
				}
			case <-limit:
				t.Fatalf("%s: the agent sets no labels", what)
			}
		}
	}
	desired := func(zone string) protocol.Desired {
		return protocol.Desired{ProviderID: "elemental://1", NodeLabels: map[string]string{"topology.kubernetes.io/zone": zone}}
	}
	stop := r.start()
	r.manager.want(bootstrapOf("a"), desired("berlin"))
	await("after the bootstrap", desired("berlin").NodeLabels)
	if state := r.manager.heard("a"); state != protocol.StateSucceeded {
		r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	}
	r.manager.want(bootstrapOf("a"), desired("paris"))
	await("after a change", desired("paris").NodeLabels)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	before = nil
	r.start()
	await("after a restart", desired("paris").NodeLabels)
}
