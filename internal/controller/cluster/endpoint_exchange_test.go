package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

var longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// kubeadmMachine makes a Machine one of the control plane, with bootstrap data of kubeadm.
func kubeadmMachine(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
	controllertest.ControlPlane(o, m)
	o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: o.Name}
}

// withReservedHost creates a cluster whose endpoint is the address of the reserved host h1.
// h2 is free.
func withReservedHost(t *testing.T) (f *fixture, h1, h2 *infrav1.ElementalHost) {
	t.Helper()
	f = newFixture(t, kubeadm)
	f.controlPlane(nil)
	h1, h2 = f.host("h1", "10.0.0.1"), f.host("h2", "10.0.0.2")
	f.reconcileUntilStable()
	f.Expect(f.claimOf(h1)).To(Equal("Reserved c"))
	f.copyEndpoint()
	return f, h1, h2
}

func TestUnsuitableReservedHostIsExchanged(t *testing.T) {
	for name, fail := range map[string]func(*fixture, *infrav1.ElementalHost){
		"disconnected": func(f *fixture, h *infrav1.ElementalHost) { f.SetConnection(h, infrav1.ConnectionDisconnected) },
		"cordoned": func(f *fixture, h *infrav1.ElementalHost) {
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} })
		},
		"address changed": func(f *fixture, h *infrav1.ElementalHost) {
			f.Report(h, func(s *infrav1.ElementalHostStatus) {
				s.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.77"}}
			})
		},
		"deleted": func(f *fixture, h *infrav1.ElementalHost) { f.Delete(h) },
		"reserved for another cluster": func(f *fixture, h *infrav1.ElementalHost) {
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ClusterName: "d", Phase: infrav1.ClaimReserved}
			})
		},
		"claimed by a worker": func(f *fixture, h *infrav1.ElementalHost) {
			f.Machine("c", "worker")
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "worker", Phase: infrav1.ClaimBound}
			})
		},
		"reset after a failed bootstrap": func(f *fixture, h *infrav1.ElementalHost) {
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "former", Phase: infrav1.ClaimReleasing}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, h1, h2 := withReservedHost(t)
			outdated, _ := f.Machine("c", "cp-1", kubeadmMachine)
			worker, _ := f.Machine("c", "worker-1")
			f.Clock.SetTime(time.Now())
			fail(f, h1)
			f.reconcileUntilStable()
			want := "10.0.0.2"
			if name == "address changed" {
				want = "10.0.0.77"
				f.Expect(f.claimOf(h1)).To(Equal("Reserved c"))
			} else {
				f.Expect(f.claimOf(h2)).To(Equal("Reserved c"))
			}
			f.Expect(f.endpoint().Host).To(Equal(want))
			f.Expect(f.cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: want, Port: 6443}), "Cluster API copies it only once")
			f.Expect(f.Exists(outdated)).To(BeFalse(), "its bootstrap data names the former endpoint")
			f.Expect(f.Exists(worker)).To(BeTrue())
			f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)

			f.Clock.Step(2 * time.Second)
			f.reconcileUntilStable()
			if name == "disconnected" {
				f.SetConnection(h1, infrav1.ConnectionConnected)
				f.reconcileUntilStable()
				f.Expect(f.endpoint().Host).To(Equal(want), "the endpoint stays when the host is suitable again")
				f.Expect(f.claimOf(h1)).To(Equal("free"))
			}
		})
	}
}

func TestNoOtherHostToExchangeWith(t *testing.T) {
	f, h1, h2 := withReservedHost(t)
	f.SetConnection(h2, infrav1.ConnectionDisconnected)
	f.SetConnection(h1, infrav1.ConnectionDisconnected)
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoHostReason)
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "it is never reset")
	f.SetConnection(h1, infrav1.ConnectionConnected)
	f.reconcileUntilStable()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))
	f.Expect(f.claimOf(h1)).To(Equal("Reserved c"))
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
}

// Once a control-plane machine has claimed the host, or the control plane is initialized,
// the endpoint is never exchanged.
func TestEndpointInUseStays(t *testing.T) {
	bind := func(f *fixture, h *infrav1.ElementalHost) {
		f.Machine("c", "cp-1", kubeadmMachine)
		controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "cp-1", Phase: infrav1.ClaimBound}
		})
	}
	for name, use := range map[string]func(*fixture, *infrav1.ElementalHost){
		"bound": bind,
		"control plane initialized": func(f *fixture, _ *infrav1.ElementalHost) {
			controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
				c.Status.Initialization.ControlPlaneInitialized = new(true)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, h1, h2 := withReservedHost(t)
			f.Clock.Step(time.Hour)
			use(f, h1)
			f.SetConnection(h1, infrav1.ConnectionDisconnected)
			f.reconcileUntilStable()
			f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))
			f.Expect(f.claimOf(h2)).To(Equal("free"))
			f.Expect(f.Exists(&clusterv1.Machine{ObjectMeta: f.Meta("cp-1")})).To(Equal(name == "bound"), "Machines with a host are not outdated")
			f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
		})
	}
}

// A Machine may be created in the same second as the first choice of a host.
func TestMachinesOfTheFirstChoiceAreNotOutdated(t *testing.T) {
	f, _, _ := withReservedHost(t)
	f.Clock.SetTime(time.Now())
	machine, _ := f.Machine("c", "cp-1", kubeadmMachine)
	f.reconcileUntilStable()
	f.reconcileUntilStable()
	f.Expect(f.Exists(machine)).To(BeTrue())
}

// The test fails each write in turn, before or after it reaches the API server. In the end
// one host is reserved, its address is the endpoint of both objects, and no Machine has
// another endpoint.
func TestCrashAtEveryWrite(t *testing.T) {
	run := func(t *testing.T, n int, moment controllertest.Moment) int {
		t.Helper()
		f := newFixture(t, kubeadm)
		f.controlPlane(nil)
		h1, h2 := f.host("h1", "10.0.0.1"), f.host("h2", "10.0.0.2")
		f.Client.FailWrite(n, moment)
		f.reconcileUntilStable()
		f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))
		f.Expect([]string{f.claimOf(h1), f.claimOf(h2)}).To(Equal([]string{"Reserved c", "free"}))
		f.copyEndpoint()
		outdated, _ := f.Machine("c", "cp-1", kubeadmMachine)
		f.SetConnection(h1, infrav1.ConnectionDisconnected)
		f.Clock.SetTime(time.Now())
		f.reconcileUntilStable()
		f.Expect(f.endpoint().Host).To(Equal("10.0.0.2"))
		f.Expect(f.cluster.Spec.ControlPlaneEndpoint.Host).To(Equal("10.0.0.2"))
		f.Expect([]string{f.claimOf(h1), f.claimOf(h2)}).To(Equal([]string{"free", "Reserved c"}))
		f.Expect(f.Exists(outdated)).To(BeFalse())
		f.Delete(f.infra)
		f.reconcileUntilStable()
		f.Expect(f.Exists(f.infra)).To(BeFalse())
		f.Expect([]string{f.claimOf(h1), f.claimOf(h2)}).To(Equal([]string{"free", "free"}))
		return len(f.Client.Writes())
	}
	const never = 1 << 30
	writes := run(t, never, controllertest.BeforeWrite)
	NewWithT(t).Expect(writes).To(BeNumerically(">=", 9))
	for n, moment := range controllertest.Crashes(writes) {
		t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
			t.Parallel()
			run(t, n, moment)
		})
	}
}

// withoutHost returns a client whose cache does not show the host.
func withoutHost(f *fixture, name string) client.Client {
	return withStaleCache(f, func(hosts []infrav1.ElementalHost) []infrav1.ElementalHost {
		return slices.DeleteFunc(hosts, func(h infrav1.ElementalHost) bool { return h.Name == name })
	})
}

// withStaleCache returns a client whose cache shows hosts as modified by seen.
func withStaleCache(f *fixture, seen func([]infrav1.ElementalHost) []infrav1.ElementalHost) client.Client {
	live, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	f.Expect(err).NotTo(HaveOccurred())
	return interceptor.NewClient(live, interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := f.Client.List(ctx, list, opts...); err != nil {
				return err
			}
			if hosts, ok := list.(*infrav1.ElementalHostList); ok {
				hosts.Items = seen(hosts.Items)
			}
			return nil
		},
	})
}

func TestStaleCache(t *testing.T) {
	t.Run("does not exchange an endpoint in use", func(t *testing.T) {
		f, h1, h2 := withReservedHost(t)
		f.Machine("c", "cp-1", controllertest.ControlPlane)
		controllertest.Change(f.Fixture, h1, func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "cp-1", Phase: infrav1.ClaimBound}
		})
		f.reconciler = &cluster.Reconciler{Client: withoutHost(f, "h1"), APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock}
		f.reconcile()
		f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))
		f.Expect(f.claimOf(h2)).To(Equal("free"))
	})
	t.Run("does not leave a reservation behind", func(t *testing.T) {
		f, h1, _ := withReservedHost(t)
		f.Delete(f.infra)
		f.reconciler = &cluster.Reconciler{Client: withoutHost(f, "h1"), APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock}
		f.reconcile()
		f.Expect(f.Exists(f.infra)).To(BeFalse())
		f.Expect(f.claimOf(h1)).To(Equal("free"))
	})
}

// Clusters that are created together see the same free hosts, but choose different ones.
func TestClustersCreatedTogether(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(nil)
	f.host("h1", "10.0.0.1")
	other, otherInfra := f.Cluster("d", func(c *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		c.Status.Initialization.InfrastructureProvisioned = nil
		kubeadm(c, i)
	})
	f.reconciler = &cluster.Reconciler{
		APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock, Nominations: &placement.Nominations{},
		Client: withStaleCache(f, func(hosts []infrav1.ElementalHost) []infrav1.ElementalHost {
			for i := range hosts {
				hosts[i].Spec.Claim = nil
			}
			return hosts
		}),
	}
	f.reconcile()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))

	f.cluster, f.infra = other, otherInfra
	f.Expect(f.reconcile().RequeueAfter).To(Equal(time.Second), "a claim by another cluster may fail")
	f.Expect(f.endpoint().Host).To(BeEmpty(), "the host is nominated for another cluster")
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoHostReason)
	f.host("h2", "10.0.0.2")
	f.reconcile()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.2"))
}
