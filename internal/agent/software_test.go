package agent_test

import (
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// hasKubelet is a condition: the host's last inventory has this version of the kubelet.
func hasKubelet(version string) func(*manager) bool {
	return func(m *manager) bool {
		for _, report := range slices.Backward(m.reports) {
			if inventory := report.Inventory; inventory != nil {
				return inventory.Kubernetes != nil && inventory.Kubernetes.Kubelet.Version == version
			}
		}
		return false
	}
}

// A person installs a program on a host while its agent runs. The agent sees it after the
// next answer to a poll.
func TestReportsInstalledPrograms(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	r.manager.await(t, "a host without a kubelet says so", hasKubelet(""))
	install := func(version string) {
		r.mu.Lock()
		r.kubelet = protocol.Program{Path: "/usr/bin/kubelet", Version: version}
		r.mu.Unlock()
	}
	install("v1.36.3")
	r.manager.want(nil, protocol.Desired{})
	r.manager.await(t, "the kubelet is reported", hasKubelet("v1.36.3"))

	// An answer that brings an operation starts no search: the search follows the operation.
	r.hold = make(chan struct{})
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	install("v1.36.4")
	r.manager.await(t, "a long poll is open", taken)
	r.mu.Lock()
	before := r.searches
	r.mu.Unlock()
	r.manager.want(bootstrapOf("a"), protocol.Desired{Hostname: "h"})
	r.manager.await(t, "the next poll is open", taken)
	r.mu.Lock()
	after := r.searches
	r.mu.Unlock()
	if before != after {
		t.Errorf("searched %d times during a bootstrap", after-before)
	}
	close(r.hold)
	r.manager.await(t, "the kubelet that the bootstrap has installed is reported", hasKubelet("v1.36.4"))
}
