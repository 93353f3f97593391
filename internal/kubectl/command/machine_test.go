package command_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

type (
	hostChange    = func(*infrav1.ElementalHost)
	machineChange = func(*clusterv1.Machine, *infrav1.ElementalMachine)
)

func labelled(key, value string) hostChange {
	return func(h *infrav1.ElementalHost) { h.Labels = map[string]string{key: value} }
}

func cores(n int32) hostChange {
	return func(h *infrav1.ElementalHost) {
		h.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: n}}
	}
}

func disconnected(h *infrav1.ElementalHost) {
	h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionDisconnected, Since: metav1.NewTime(now.Add(-time.Hour))}
}

// keyOfPending is the fingerprint of the key of a host that waits for its approval.
const keyOfPending = "sha256:0000000000000000000000000000000000000000000000000000000000000007"

func pending(h *infrav1.ElementalHost) {
	h.Spec.Approval = infrav1.ApprovalPending
	h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: keyOfPending}
}

func dirty(h *infrav1.ElementalHost) {
	h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/etc/kubernetes", "/var/lib/etcd"}}
}

func claimed(phase infrav1.ClaimPhase) hostChange {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "id", ClusterName: "other", MachineName: "m9", Phase: phase}
		if phase == infrav1.ClaimReserved {
			h.Spec.Claim = &infrav1.HostClaim{ClusterName: "other", Phase: phase}
		}
	}
}

func selects(s infrav1.HostSelector) machineChange {
	return func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { m.Spec.HostSelector = &s }
}

// waits creates a Machine m1 of a Cluster c1, which the manager has looked at, and hosts.
func waits(change machineChange, hosts ...[]hostChange) func(*fixture) {
	return func(f *fixture) {
		f.Cluster("c1")
		for i, changes := range hosts {
			f.Host(fmt.Sprintf("h%d", i+1), changes...)
		}
		if change == nil {
			change = func(*clusterv1.Machine, *infrav1.ElementalMachine) {}
		}
		_, m := f.Machine("c1", "m1", change)
		f.reconcile(m)
	}
}

func with(changes ...hostChange) []hostChange { return changes }

// Each situation says which host, which term and which remedy: a person who has only the
// output can end it.
func TestExplainMachineWithoutHost(t *testing.T) {
	for name, situation := range withoutHost() {
		t.Run(name, func(t *testing.T) { expectExplanation(t, "machine-"+name, situation, "machine", "m1") })
	}
}

// withoutHost returns situations in which a Machine m1 has no host.
func withoutHost() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"no-hosts": waits(nil),
		"registration": func(f *fixture) {
			f.Create(&infrav1.ElementalRegistration{ObjectMeta: f.Meta("berlin")})
			waits(nil)(f)
		},
		"labels": waits(selects(infrav1.HostSelector{MatchLabels: infrav1.Labels{"disk": "nvme", "rack": "r2"}}),
			with(labelled("rack", "r1"))),
		// A failure domain is no label, and its text must not become a command.
		"failure-domain-text": func(f *fixture) {
			waits(func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.FailureDomain = "x; reboot #" }, with())(f)
		},
		"label-choice": waits(selects(infrav1.HostSelector{MatchExpressions: []infrav1.HostSelectorRequirement{
			{Key: "rack", Operator: metav1.LabelSelectorOpIn, Values: []string{"r2", "r3"}},
		}}), with()),
		"label": waits(selects(infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r2"}}),
			with(labelled("rack", "r1")), with()),
		"expression": waits(selects(infrav1.HostSelector{Expression: `host.name.startsWith("h") && host.inventory.cpu.cores >= 8`}),
			with(cores(4)), with(cores(2), disconnected)),
		"expression-fails":  waits(selects(infrav1.HostSelector{Expression: `host.labels["rack"] == "r1"`}), with()),
		"inventory-unknown": waits(selects(infrav1.HostSelector{Expression: `host.inventory.cpu.cores >= 8`}), with()),
		"pinned": waits(func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { m.Spec.HostName = "h2" },
			with(), with(func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "disk"} })),
		"pending":      waits(nil, with(pending)),
		"rejected":     waits(nil, with(pending, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected })),
		"disconnected": waits(nil, with(disconnected)),
		"leftovers":    waits(nil, with(dirty)),
		"cordoned":     waits(nil, with(func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "disk"} })),
		"maintenance":  waits(nil, with(func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} })),
		"fenced":       waits(nil, with(func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} })),
		"quarantined": waits(nil, with(func(h *infrav1.ElementalHost) {
			h.Spec.Quarantine = &infrav1.HostQuarantine{Reason: "3 failed bootstraps", Until: metav1.NewTime(now.Add(time.Hour))}
		})),
		"claimed": waits(nil, with(claimed(infrav1.ClaimBound)), with(claimed(infrav1.ClaimReserved)), with(claimed(infrav1.ClaimHeld)),
			with(claimed(infrav1.ClaimReleasing))),
		"failure-domain": waits(func(owner *clusterv1.Machine, _ *infrav1.ElementalMachine) { owner.Spec.FailureDomain = "berlin" },
			with(labelled(infrav1.DefaultFailureDomainLabel, "paris")), with()),
		"bootstrap-data": waits(func(owner *clusterv1.Machine, _ *infrav1.ElementalMachine) {
			owner.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "m1",
			}}
		}, with()),
		"many": func(f *fixture) {
			f.Cluster("c1")
			for i := range 23 {
				f.Host(fmt.Sprintf("away-%02d", i+1), disconnected)
			}
			f.Host("dirty", dirty)
			_, m := f.Machine("c1", "m1")
			f.reconcile(m)
		},
		"tunnel": func(f *fixture) {
			f.Cluster("c1", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
				c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
			})
			for _, name := range []string{"h1", "h2"} {
				f.Host(name, func(h *infrav1.ElementalHost) { h.Spec.RegistrationRef = &infrav1.LocalReference{Name: "edge"} })
			}
			_, m := f.Machine("c1", "m1")
			f.reconcile(m)
		},
		"adopted": func(f *fixture) {
			f.Cluster("c1", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.Origin = infrav1.OriginAdopted })
			f.Host("h1")
			for i, cluster := range []string{"c1", "c2"} {
				f.Host(fmt.Sprintf("h%d", i+2), dirty, func(h *infrav1.ElementalHost) {
					h.Spec.Adoption = &infrav1.HostAdoption{ClusterName: cluster, Role: infrav1.AdoptedControlPlane}
				})
			}
			_, m := f.Machine("c1", "m1")
			f.reconcile(m)
		},
		"endpoint-host": func(f *fixture) {
			f.Cluster("c1", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
				c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "h2", ChosenAt: metav1.NewTime(now)}
			})
			f.Host("h1")
			f.Host("h2", disconnected, func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c1", Phase: infrav1.ClaimReserved}
			})
			_, m := f.Machine("c1", "m1", controllertest.ControlPlane)
			f.reconcile(m)
		},
		"infrastructure": func(f *fixture) {
			f.Cluster("c1", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
				c.Status.Initialization.InfrastructureProvisioned = nil
			})
			_, m := f.Machine("c1", "m1")
			f.reconcile(m)
		},
		"not-reconciled": func(f *fixture) {
			f.Cluster("c1")
			f.Host("h1")
			f.Machine("c1", "m1")
		},
		"paused": func(f *fixture) {
			f.Cluster("c1", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) { c.Spec.Paused = new(true) })
			_, m := f.Machine("c1", "m1")
			f.reconcile(m)
		},
	}
}

// expectExplanation creates a situation, and compares what explain says twelve minutes later.
func expectExplanation(t *testing.T, golden string, situation func(*fixture), args ...string) {
	t.Helper()
	f := newFixture(t)
	situation(f)
	f.Clock.Step(12 * time.Minute)
	text, err := f.run(append([]string{"explain"}, args...)...)
	f.Expect(err).NotTo(HaveOccurred())
	f.expectGolden(golden, text)
}

// claims creates a Machine m1 that has claimed host h1, and changes both afterwards.
func claims(change func(f *fixture, m *infrav1.ElementalMachine, h *infrav1.ElementalHost)) func(*fixture) {
	return func(f *fixture) {
		f.Cluster("c1")
		host := f.Host("h1")
		_, m := f.Machine("c1", "m1")
		f.reconcile(m)
		f.Refresh(host)
		change(f, m, host)
		if f.Exists(m) {
			f.reconcile(m)
		}
	}
}

func TestExplainMachineWithHost(t *testing.T) {
	for name, situation := range withHost() {
		t.Run(name, func(t *testing.T) { expectExplanation(t, "machine-"+name, situation, "machine", "m1") })
	}
}

// withHost returns situations in which a Machine m1 has host h1.
func withHost() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"bootstrapping": claims(func(f *fixture, _ *infrav1.ElementalMachine, h *infrav1.ElementalHost) {
			f.Report(h, func(s *infrav1.ElementalHostStatus) {
				controllertest.SetOperation(s, infrav1.HostOperation{
					Type: infrav1.OperationBootstrap, ID: h.Spec.Claim.ID, State: infrav1.OperationRunning, Step: "runcmd 3/7",
				})
			})
		}),
		"bootstrap-failed": claims(func(f *fixture, _ *infrav1.ElementalMachine, h *infrav1.ElementalHost) {
			f.Report(h, func(s *infrav1.ElementalHostStatus) {
				s.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityLogs)}}
				controllertest.SetOperation(s, infrav1.HostOperation{
					Type: infrav1.OperationBootstrap, ID: h.Spec.Claim.ID, State: infrav1.OperationFailed, Step: "runcmd 3/7",
					Message: "kubeadm: exit status 1 \x1b[31m",
				})
			})
		}),
		"host-away": claims(func(f *fixture, _ *infrav1.ElementalMachine, h *infrav1.ElementalHost) {
			f.SetConnection(h, infrav1.ConnectionDisconnected)
		}),
		"host-deleted": claims(func(f *fixture, _ *infrav1.ElementalMachine, h *infrav1.ElementalHost) { f.Delete(h) }),
		"releasing-away": claims(func(f *fixture, m *infrav1.ElementalMachine, h *infrav1.ElementalHost) {
			f.SetConnection(h, infrav1.ConnectionDisconnected)
			f.Delete(m)
			f.reconcile(m)
			f.Refresh(h)
		}),
	}
}

// Errors name what to change.
func TestExplainErrors(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "machine", "m1"}, "there is no Machine or ElementalMachine m1 in namespace "},
		{[]string{"explain", "host", "h1"}, "there is no ElementalHost h1 in namespace "},
		{[]string{"explain", "cluster", "c1"}, "there is no Cluster c1 in namespace "},
		{[]string{"explain", "host"}, "accepts 1 arg(s), received 0"},
		{[]string{"explain", "host", "h1", "-o", "xml"}, `--output is "xml"; it must be json or yaml`},
		{[]string{"hosts", "-l", "a b"}, "reading --selector: "},
		{[]string{"hosts", "--watch", "-o", "json"}, "--watch never ends"},
		{[]string{"nothing"}, "unknown command"},
	} {
		_, err := f.run(tc.args...)
		f.Expect(err).To(MatchError(ContainSubstring(tc.want)), "%v", tc.args)
	}
}
