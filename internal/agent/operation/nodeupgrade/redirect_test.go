package nodeupgrade_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxStep is how much of a step's text the manager keeps, in bytes.
const maxStep = 128

// Where the endpoint's clients go during an upgrade that succeeds.
func TestRedirection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(m *machine)
		// went is where connections went, in order.
		went []string
		// says is part of a step's message; blank if the endpoint is not spoken of.
		says string
	}{
		"to the first that is ready": {func(*machine) {}, []string{peerA, "cut", ""}, "kubeadm: connections to the endpoint go to " + peerA},
		"to another one":             {func(m *machine) { m.api.down = []string{peerA} }, []string{peerB, "cut", ""}, "go to " + peerB},
		"to another one later":       {func(m *machine) { m.onKubeadm = func() { m.api.down = []string{peerA} } }, []string{peerA, peerB, "cut", ""}, "go to " + peerB},
		"one failure is nothing":     {func(m *machine) { m.api.falters = peerA }, []string{peerA, "cut", ""}, "go to " + peerA},
		"none is ready":              {func(m *machine) { m.api.down = []string{peerA, peerB} }, nil, "no other API server is ready"},
		"none is ready any more": {
			func(m *machine) { m.onKubeadm = func() { m.api.down = []string{peerA, peerB} } }, []string{peerA, "cut", ""}, "no other API server is ready",
		},
		"the plan has others now": {func(m *machine) {
			wanted := m.want
			wanted.Redirect = &protocol.Redirect{Endpoint: address + ":6443", Servers: []string{peerB}}
			m.plan.Operation.NodeUpgrade = &wanted
		}, []string{peerB, "cut", ""}, "go to " + peerB},
		"the plan is another now": {func(m *machine) {
			m.onKubeadm = func() { m.plan.Operation = nil }
		}, []string{peerA, "cut", ""}, "go to " + peerA},
		"the endpoint has moved": {func(m *machine) {
			m.onKubeadm = func() {
				wanted := m.want
				wanted.Redirect, m.want.Redirect = nil, nil
				m.plan.Operation.NodeUpgrade = &wanted
			}
		}, []string{peerA, ""}, "the endpoint is not at this host"},
		"no nft":                    {func(m *machine) { m.filter.isMissing = true }, nil, "this takes nft: install nftables"},
		"what is passed on is lost": {func(m *machine) { m.filter.isBlocking = true }, []string{peerA, "cut", ""}, "look at its packet filter"},
		"nothing is passed on": {func(m *machine) {
			m.write("/proc/sys/net/ipv4/ip_forward", "0\n", 0o644)
			m.api.down = []string{peerA, peerB}
		}, nil, "ip_forward is 0"},
		"not this host's address": {func(m *machine) {
			m.want.Redirect.Endpoint = "192.0.2.9:6443"
			m.api.down = []string{peerA, peerB}
		}, nil, "192.0.2.9 is no address of this host"},
		"no endpoint":                {func(m *machine) { m.want.Redirect = nil }, nil, ""},
		"nft fails to delete thrice": {func(m *machine) { m.filter.failures = 3 }, []string{peerA, "cut", ""}, "go to " + peerA},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, protocol.UpgradeControlPlane, 1)
			test.prepare(m)
			if result := m.finish(); result.State != protocol.StateSucceeded || result.Message != "" {
				t.Fatalf("got %+v", result)
			}
			m.expectServing(newVersion, newVersion)
			if !slices.Equal(m.filter.went, test.went) {
				t.Errorf("connections went %q, not %q", m.filter.went, test.went)
			}
			var says string
			for _, step := range m.progress {
				says += step[:min(len(step), maxStep)] + "\n"
			}
			if test.says == "" && strings.Contains(says, "endpoint") || !strings.Contains(says, test.says) {
				t.Errorf("the steps were %q", m.progress)
			}
		})
	}
}

// A worker has nothing to redirect, whatever its plan says.
func TestNoRedirectionOfWorkers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeWorker, 1)
	m.atEndpoint()
	if result := m.finish(); result.State != protocol.StateSucceeded || len(m.filter.went) > 0 {
		t.Errorf("got %+v, connections went %q", result, m.filter.went)
	}
}

// On the way back connections go to another API server until the old one is ready again.
func TestRedirectionOnTheWayBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		crashing string
		outcome  protocol.UpgradeOutcome
		went     []string
	}{
		"the control plane": {image("kube-apiserver", newVersion), protocol.UpgradeRolledBack, []string{peerA, "cut", ""}},
		"the kubelet":       {newVersion, protocol.UpgradePartlyDone, []string{peerA, "cut", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, protocol.UpgradeControlPlane, 1)
			m.crash(test.crashing)
			m.onRestart = func() {
				if goes := m.filter.goes(); test.outcome == protocol.UpgradeRolledBack && goes != peerA {
					t.Errorf("connections go to %q before the old API server is back", goes)
				}
			}
			if result := m.finish(); protocol.UpgradeOutcomeOf(result.Message) != test.outcome {
				t.Errorf("got %+v", result)
			}
			if !slices.Equal(m.filter.went, test.went) {
				t.Errorf("connections went %q", m.filter.went)
			}
		})
	}
}

// An API server that never comes back must not keep the endpoint at its host: the others see
// that, and the endpoint moves.
func TestNoRedirectionOfABrokenHost(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeControlPlane, 1)
	m.crash(image("kube-apiserver", newVersion))
	m.onRestart = func() { m.crash(image("kube-apiserver", newVersion), image("kube-apiserver", oldVersion)) }
	result := m.finish()
	if protocol.UpgradeOutcomeOf(result.Message) != protocol.UpgradeLeftBroken || !slices.Equal(m.filter.went, []string{peerA, ""}) {
		t.Errorf("got %+v, connections went %q", result, m.filter.went)
	}
}

// The checkpoint is gone, so the way back fails.
func TestNoRedirectionAfterAFailedWayBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeControlPlane, 1)
	m.crash(image("kube-apiserver", newVersion))
	m.onKubeadm = func() { m.must(os.RemoveAll(m.path("/state/checkpoints/nodeupgrade-one/index.json"))) }
	result := m.finish()
	if protocol.UpgradeOutcomeOf(result.Message) != protocol.UpgradeLeftBroken || m.filter.table != "" || !slices.Contains(m.filter.went, peerA) {
		t.Errorf("got %+v, connections went %q", result, m.filter.went)
	}
}

// A reset finds no redirection of the upgrade that it ends.
func TestResetEndsRedirection(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeControlPlane, 1)
	m.onKubeadm = func() { m.plan.Operation = &protocol.Operation{Type: protocol.OperationReset, ID: "x"} }
	if _, _, err := m.live(0); !errors.Is(err, operation.ErrSuperseded) {
		t.Errorf("got %v", err)
	}
	if m.filter.table != "" || !slices.Contains(m.filter.went, peerA) {
		t.Errorf("connections went %q", m.filter.went)
	}
}

// Connections lead to API servers of the cluster only, whatever address a plan has: the
// server proves it by a certificate of the cluster that covers the endpoint.
func TestThreat65_OnlyAPIServersOfTheCluster(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string][]string{"one": {peerA}, "all": {peerA, peerB}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, protocol.UpgradeControlPlane, 1)
			m.beForeign(foreign...)
			m.filter.isUnchecked = true
			if result := m.finish(); result.State != protocol.StateSucceeded {
				t.Fatalf("got %+v", result)
			}
			for _, server := range foreign {
				if slices.Contains(m.filter.went, server) {
					t.Errorf("connections went %q", m.filter.went)
				}
			}
		})
	}
}

// A redirection ends with the step that needs it.
func TestThreat65_OnlyDuringTheUpgrade(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeFirstControlPlane, 1)
	if result := m.finish(); result.State != protocol.StateSucceeded {
		t.Fatalf("got %+v", result)
	}
	if want := []string{peerA, "cut", ""}; !slices.Equal(m.filter.went, want) || m.filter.table != "" {
		t.Errorf("connections went %q, not %q", m.filter.went, want)
	}
}
