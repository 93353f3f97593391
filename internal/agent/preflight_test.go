package agent_test

import (
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// hasSwap is a condition: the host's last inventory has this state of swap.
func hasSwap(state protocol.FeatureState) func(*manager) bool {
	return func(m *manager) bool {
		for _, report := range slices.Backward(m.reports) {
			if inventory := report.Inventory; inventory != nil {
				return inventory.Preflight != nil && inventory.Preflight.Swap == state
			}
		}
		return false
	}
}

// A person turns swap off while the agent runs. The agent sees it after the next answer to a
// poll, and reports nothing while nothing changes.
func TestReportsChangesOfTheOperatingSystem(t *testing.T) {
	r := newRig(t)
	r.preflight = protocol.Preflight{Swap: protocol.FeatureEnabled}
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	r.manager.await(t, "swap is reported", hasSwap(protocol.FeatureEnabled))
	r.manager.want(nil, protocol.Desired{Hostname: "h"})
	r.manager.await(t, "the next poll is open", taken)
	r.mu.Lock()
	r.preflight = protocol.Preflight{Swap: protocol.FeatureDisabled}
	r.mu.Unlock()
	r.manager.want(nil, protocol.Desired{})
	r.manager.await(t, "the change is reported", hasSwap(protocol.FeatureDisabled))
	r.manager.await(t, "one report for each state", func(m *manager) bool {
		inventories := 0
		for _, report := range m.reports {
			if report.Inventory != nil {
				inventories++
			}
		}
		return inventories == 2
	})
}

// The container runtime starts after the agent. The agent sees it before the next answer to a poll.
func TestReportsARuntimeThatStartsLater(t *testing.T) {
	r := newRig(t)
	r.preflight = protocol.Preflight{RuntimeSocket: protocol.FeatureDisabled}
	r.start()
	has := func(state protocol.FeatureState) func(*manager) bool {
		return func(m *manager) bool {
			for _, report := range slices.Backward(m.reports) {
				if report.Inventory != nil {
					return report.Inventory.Preflight != nil && report.Inventory.Preflight.RuntimeSocket == state
				}
			}
			return false
		}
	}
	r.manager.await(t, "a long poll is open", taken)
	r.manager.await(t, "the runtime does not run", has(protocol.FeatureDisabled))
	r.mu.Lock()
	r.preflight = protocol.Preflight{RuntimeSocket: protocol.FeatureEnabled}
	r.mu.Unlock()
	r.manager.await(t, "the runtime runs", has(protocol.FeatureEnabled))
}

// A program is too slow to print its version while the host boots. The agent sees it before the next answer to a poll.
func TestReportsAVersionThatIsPrintedLater(t *testing.T) {
	r := newRig(t)
	r.kubelet = protocol.Program{Path: "/usr/bin/kubelet"}
	r.start()
	has := func(version string) func(*manager) bool {
		return func(m *manager) bool {
			for _, report := range slices.Backward(m.reports) {
				if report.Inventory != nil {
					return report.Inventory.Kubernetes != nil && report.Inventory.Kubernetes.Kubelet.Version == version
				}
			}
			return false
		}
	}
	r.manager.await(t, "a long poll is open", taken)
	r.manager.await(t, "the kubelet prints nothing", has(""))
	r.mu.Lock()
	r.kubelet.Version = "v1.36.3"
	r.mu.Unlock()
	r.manager.await(t, "the kubelet prints its version", has("v1.36.3"))
}
