package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func TestEndpointOfTheUser(t *testing.T) {
	for name, tc := range map[string]struct {
		given, want infrav1.ControlPlaneEndpoint
		policy      infrav1.EndpointType
	}{
		"host and port": {infrav1.ControlPlaneEndpoint{Host: "10.0.0.9", Port: 8443}, infrav1.ControlPlaneEndpoint{Host: "10.0.0.9", Port: 8443}, ""},
		"host":          {infrav1.ControlPlaneEndpoint{Host: "api.example.org"}, infrav1.ControlPlaneEndpoint{Host: "api.example.org", Port: 6443}, ""},
		"external":      {infrav1.ControlPlaneEndpoint{Host: "10.0.0.9"}, infrav1.ControlPlaneEndpoint{Host: "10.0.0.9", Port: 6443}, infrav1.EndpointTypeExternal},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
				c.Spec.ControlPlaneEndpoint, c.Spec.ControlPlaneEndpointPolicy.Type = tc.given, tc.policy
			})
			host := f.host("h1", "10.0.0.1")
			f.reconcileUntilStable()
			f.Expect(f.endpoint()).To(Equal(tc.want))
			f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef).To(BeNil())
			f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
			f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, yes, infrav1.EndpointFromUserReason)
			f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
			f.Expect(f.claimOf(host)).To(Equal("free"))
		})
	}
}

func TestEndpointGivenOnTheCluster(t *testing.T) {
	f := newFixture(t, kubeadm, func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.9", Port: 7443}
	})
	host := f.host("h1", "10.0.0.1")
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, yes, infrav1.EndpointFromUserReason)
	f.Expect(f.cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: "10.0.0.9", Port: 7443}))
	f.Expect(f.endpoint().Host).To(BeEmpty())
	f.Expect(f.claimOf(host)).To(Equal("free"))
}

func TestExternalEndpointIsWaitedFor(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
	})
	host := f.host("h1", "10.0.0.1")
	f.controlPlane(nil)
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointRequiredReason)
	f.Expect(f.infra.Status.Initialization.Provisioned).To(BeNil())
	f.Expect(f.claimOf(host)).To(Equal("free"))
}

func TestBlankEndpointIsFilled(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpoint.Port = 7443 })
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"role": "control-plane"}})
	big := func(h *infrav1.ElementalHost) { h.Labels = map[string]string{"role": "control-plane"} }
	f.host("a-worker", "10.0.0.1")
	f.host("b-unknown-address", "", big)
	chosen := f.host("c-suitable", "10.0.0.3", big)
	f.host("d-too", "10.0.0.4", big)

	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "10.0.0.3", Port: 7443}))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.Type).To(Equal(infrav1.EndpointTypeHost))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal("c-suitable"))
	f.Expect(f.claimOf(chosen)).To(Equal("Reserved c"))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, yes, infrav1.EndpointFromHostReason)
	f.Expect(f.Events()).To(ContainElement(And(ContainSubstring("10.0.0.3"), ContainSubstring("c-suitable"))))

	f.copyEndpoint()
	f.Client.Forget()
	f.reconcileUntilStable()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "a cluster at rest is not written")
}

// The endpoint of a cluster that ran before is the address of the host that runs its control plane.
func TestBlankEndpointOfAnAdoptedCluster(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.Origin = infrav1.OriginAdopted })
	f.controlPlane(nil)
	free := f.host("a", "10.0.0.1")
	f.reconcileUntilStable()
	c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoHostReason)
	f.Expect(c.Message).To(ContainSubstring("1 not declared for adoption"))
	f.Expect(f.claimOf(free)).To(Equal("free"))

	running := f.host("b", "10.0.0.2", func(h *infrav1.ElementalHost) {
		h.Spec.Adoption = &infrav1.HostAdoption{ClusterName: "c", Role: infrav1.AdoptedControlPlane}
		h.Status.Cleanliness.State = infrav1.CleanlinessDirty
		h.Status.Agent = &infrav1.HostAgent{Version: "v0.2.0", Capabilities: []string{"Bootstrap", "Reset", "Adopt"}}
	})
	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "10.0.0.2", Port: 6443}))
	f.Expect(f.claimOf(running)).To(Equal("Reserved c"))
	f.Expect(f.claimOf(free)).To(Equal("free"))
}

func TestBlankEndpointWaitsForAHost(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(nil)
	away := f.host("h1", "10.0.0.1", func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected })
	f.reconcileUntilStable()
	c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoHostReason)
	f.Expect(c.Message).To(ContainSubstring("1 " + infrav1.DisconnectedReason))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(BeNil())
	f.SetConnection(away, infrav1.ConnectionConnected)
	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}))
	f.Expect(f.claimOf(away)).To(Equal("Reserved c"))
}

func TestEndpointWaitsForWhatItIsToBeFor(t *testing.T) {
	f := newFixture(t)
	host := f.host("h1", "10.0.0.1")
	f.reconcile()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.WaitingForControlPlaneRefReason)

	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
		kubeadm(c, nil)
		c.Spec.ControlPlaneRef.Kind = "OtherControlPlane"
	})
	f.reconcile()
	f.Expect(f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.TemplateNotFoundReason).Message).To(ContainSubstring("not installed"))

	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { kubeadm(c, nil) })
	f.reconcile()
	f.Expect(f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.TemplateNotFoundReason).Message).To(ContainSubstring("KubeadmControlPlane c"))

	template := f.controlPlane(nil)
	f.Delete(template)
	result := f.reconcile()
	f.Expect(f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.TemplateNotFoundReason).Message).To(ContainSubstring("ElementalMachineTemplate c"))
	f.Expect(result.RequeueAfter).NotTo(BeZero(), "templates are not watched")
	f.Expect(f.claimOf(host)).To(Equal("free"))

	f.Expect(f.Admin.Create(f.Ctx, &infrav1.ElementalMachineTemplate{ObjectMeta: f.Meta("c"), Spec: template.Spec})).To(Succeed())
	f.reconcile()
	f.Expect(f.claimOf(host)).To(Equal("Reserved c"))
}

// A control plane without a template of ours may have machines of ours, which
// need no endpoint to come up.
func TestEndpointFromABootstrappedHost(t *testing.T) {
	f := newFixture(t)
	f.Machine("c", "worker")
	f.Machine("c", "cp", controllertest.ControlPlane)
	up := func(machine string) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: machine, ClusterName: "c", MachineName: machine, Phase: infrav1.ClaimBound}
			controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: machine, State: infrav1.OperationSucceeded})
		}
	}
	f.host("h1", "10.0.0.1", up("worker"))
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.WaitingForControlPlaneRefReason)
	f.host("h2", "10.0.0.2", up("cp"))
	f.reconcileUntilStable()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.2"))
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
}

func TestWaitsForItsOwner(t *testing.T) {
	f := newFixture(t)
	alone := &infrav1.ElementalCluster{ObjectMeta: f.Meta("alone")}
	f.Create(alone)
	f.infra = alone
	f.reconcile()
	f.ExpectCondition(alone, infrav1.ReadyCondition, no, infrav1.WaitingForOwnerReason)
	f.Expect(alone.Finalizers).To(BeEmpty())
}

func TestPausedClustersChooseNothing(t *testing.T) {
	for name, pause := range map[string]func(*fixture){
		"cluster": func(f *fixture) {
			controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
		},
		"annotation": func(f *fixture) {
			controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
				c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			})
		},
		"missing cluster": func(f *fixture) { f.Delete(f.cluster) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm)
			f.controlPlane(nil)
			host := f.host("h1", "10.0.0.1")
			pause(f)
			f.reconcile()
			f.ExpectCondition(f.infra, clusterv1.PausedCondition, yes, clusterv1.PausedReason)
			f.Expect(f.claimOf(host)).To(Equal("free"))
			f.Expect(f.endpoint().Host).To(BeEmpty())
		})
	}
}

func TestClustersOfOthersAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Cluster, *infrav1.ElementalCluster){
		"externally managed": func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
			c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "somebody"}
		},
		"another watch filter": func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Labels[clusterv1.WatchLabel] = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm, change)
			f.controlPlane(nil)
			f.host("h1", "10.0.0.1")
			if name == "another watch filter" {
				f.reconciler.WatchFilter = "mine"
			}
			f.reconcile()
			f.Expect(f.Client.Writes()).To(BeEmpty())
		})
	}
}

func TestDeletionGivesReservationsBack(t *testing.T) {
	for name, moved := range map[string]bool{"deleted": false, "deleted for a move": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm)
			f.controlPlane(nil)
			reserved := f.host("h1", "10.0.0.1")
			bound := f.host("h2", "10.0.0.2", func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
			})
			other := f.host("h3", "10.0.0.3", func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ClusterName: "d", Phase: infrav1.ClaimReserved}
			})
			f.reconcileUntilStable()
			f.Expect(f.claimOf(reserved)).To(Equal("Reserved c"))
			f.Delete(f.infra)
			if moved {
				controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
					c.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
				})
			} else {
				f.Delete(f.cluster)
			}
			f.reconcile()
			f.Expect(f.Exists(f.infra)).To(BeFalse())
			want := map[bool]string{false: "free", true: "Reserved c"}[moved]
			f.Expect(f.claimOf(reserved)).To(Equal(want))
			f.Expect(f.claimOf(bound)).To(Equal("Bound c"), "that is the machine's to release")
			f.Expect(f.claimOf(other)).To(Equal("Reserved d"))
		})
	}
}

// A cluster that is moved or restored comes without status.
func TestCreateFromADump(t *testing.T) {
	f := newFixture(t, kubeadm, func(c *clusterv1.Cluster, ec *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}
		ec.Finalizers = []string{infrav1.ClusterFinalizer}
		ec.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
		ec.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
			Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "h1", ChosenAt: ec.CreationTimestamp},
		}
		ec.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt.Time = longAgo
	})
	f.controlPlane(nil)
	host := f.host("h1", "", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "cp", Phase: infrav1.ClaimBound}
		h.Status = infrav1.ElementalHostStatus{}
	})
	f.Machine("c", "cp", controllertest.ControlPlane)
	free := f.host("h0", "10.0.0.9")
	before := f.infra.Spec.DeepCopy()
	f.reconcileUntilStable()
	f.Expect(f.infra.Spec).To(Equal(*before))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.Expect(f.claimOf(host)).To(Equal("Bound c"))
	f.Expect(f.claimOf(free)).To(Equal("free"))
}
