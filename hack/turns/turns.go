package main

import (
	"fmt"
	"strings"
	"time"
)

// turn is a test that takes turns with the others of its group.
type turn struct {
	// name identifies the turn in the record and names it for people.
	name string
	// takes estimates the duration until one is recorded.
	takes time.Duration
	// command is the command line, run in the root of the checkout.
	command []string
}

// longest is the time in which a turn must end: one that takes longer hangs, and fails.
const longest = 25 * time.Minute

// tooLong returns the labels of end-to-end tests for which CI has no time: they take more than 20 minutes, or
// nobody has measured how long.
func tooLong() []string {
	return []string{
		"capi", "capi-rollout-class", "endpoint", "etcd-cuts", "etcd-members", "guide", "remediation", "topology-upgrade", "upgrade",
		"upgrade-cuts", "upgrade-failures",
	}
}

// groups returns all turns. Of each group CI runs one.
func groups() [][]turn {
	return [][]turn{
		labels(),
		removals(),
		benchmarks(),
		virtualHosts(),
		{
			{name: "moves between management clusters", takes: 10 * time.Minute, command: []string{"make", "test-move"}},
			{name: "managers and agents of two versions", takes: 7 * time.Minute, command: []string{"make", "test-skew"}},
		},
		{{name: "make quickstart as an ordinary user", takes: 10 * time.Minute, command: asUser("make quickstart && make quickstart-down")}},
		{{name: "make test as an ordinary user", takes: 12 * time.Minute, command: asUser("make test")}},
	}
}

// labels returns a turn for each label of end-to-end tests. make ci runs smoke, so its turn has a management cluster by
// kind.
func labels() []turn {
	label := func(name string, minutes int) turn {
		return turn{
			name: "end-to-end tests " + name, takes: time.Duration(minutes) * time.Minute,
			command: []string{"make", "test-e2e", "E2E_LABELS=" + name},
		}
	}
	return []turn{
		label("adopt", 12),
		label("capi-class", 15),
		label("capi-drain", 15),
		label("capi-quick-start", 8),
		label("capi-remediation", 18),
		label("capi-rollout", 8),
		label("capi-scale", 8),
		label("certificates", 5),
		label("etcd", 10),
		label("etcd-machine", 12),
		label("failover", 12),
		label("flavors", 15),
		label("full", 18),
		label("move", 8),
		label("network-plugin", 12),
		label("packages", 5),
		label("prepared", 8),
		label("provider-upgrade", 15),
		label("reset", 12),
		label("resilience", 18),
		label("topology", 10),
		label("trust", 10),
		label("tunnel", 18),
		label("tunnel-faults", 18),
		label("tunnel-users", 19),
		label("update", 18),
		label("vip", 10),
		label("zones", 12),
		{
			name: "end-to-end tests smoke with kind", takes: 12 * time.Minute,
			command: []string{"make", "test-e2e", "E2E_LABELS=smoke", "LAB_MANAGEMENT=kind"},
		},
	}
}

// removals returns a turn for each tenth of the removals of mitigations.
func removals() []turn {
	const parts = 10
	var turns []turn
	for part := range parts {
		selection := fmt.Sprintf("%d/%d", part, parts)
		turns = append(turns, turn{
			name: "removals " + selection, takes: 6 * time.Minute, command: []string{"make", "threats", "REMOVALS=" + selection},
		})
	}
	return turns
}

// benchmarks returns turns that run all benchmarks with few hosts.
func benchmarks() []turn {
	benchmark := func(names ...string) turn {
		return turn{
			name: "benchmarks " + strings.Join(names, " and "), takes: time.Duration(len(names)) * 2 * time.Minute,
			command: []string{"make", "test-bench", "RUN=TestScenarios/^(" + strings.Join(names, "|") + ")"},
		}
	}
	return []turn{
		benchmark("memory", "sites"),
		benchmark("enrol", "failover", "snapshots"),
		benchmark("storm", "tunnel"),
		benchmark("claims", "rogue"),
		benchmark("plan", "gateway"),
	}
}

// virtualHosts returns a turn for each test of clusters on virtual hosts, but not for TestClusterLifecycle, which make ci
// runs.
func virtualHosts() []turn {
	test := func(minutes int, names ...string) turn {
		return turn{
			name: "virtual hosts " + strings.Join(names, ", "), takes: time.Duration(minutes) * time.Minute,
			command: []string{"make", "test-simulator", "RUN=^(" + strings.Join(names, "|") + ")\\b"},
		}
	}
	return []turn{
		test(4, "TestTunnelLifecycle"),
		test(4, "TestInPlaceUpgrade"),
		test(5, "TestInPlaceUpgradeOfAClass", "TestInPlaceUpgradeOfOneHost"),
		test(5, "TestQuickstart", "TestInterrupt", "TestFirstBuildIsGivenUp"),
	}
}

func asUser(script string) []string { return []string{".ci/user", "sh", "-c", script} }
