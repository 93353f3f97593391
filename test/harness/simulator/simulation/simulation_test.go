//go:build simulator

package simulation_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

const (
	often = 200 * time.Millisecond
	// soon bounds every step. Timers of Cluster API take up to a minute, and the machine may be busy.
	soon = 5 * time.Minute
	// hosts is one more than the cluster needs.
	hosts = 6
)

// scenario is one simulation for all steps of the test, because a start takes some seconds.
type scenario struct {
	*WithT
	*simulation.Simulation

	t *testing.T
}

const name = "scenario"

// newScenario starts a simulation that ends with the test.
func newScenario(t *testing.T, workloads workload.Options, change ...func(*simulation.Options)) *scenario {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	g := NewWithT(t)
	folder := t.TempDir()
	if kept := os.Getenv("ARTIFACTS"); kept != "" {
		folder = filepath.Join(kept, t.Name())
		g.Expect(os.MkdirAll(folder, 0o700)).To(Succeed())
	}
	o := simulation.Options{Hosts: hosts, Workload: workloads, Progress: os.Stderr, AgentLog: filepath.Join(folder, "agents.log")}
	o.Management.Folder = filepath.Join(folder, "management")
	o.Management.ManagerArgs = []string{"--agent-ping-interval=5s", "--agent-ping-timeout=5s", "--agent-disconnect-grace=5s"}
	for _, f := range change {
		f(&o)
	}
	sim, err := simulation.Start(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(sim.Close()).To(Succeed()) })
	s := &scenario{WithT: g, Simulation: sim, t: t}
	s.SetDefaultEventuallyTimeout(soon)
	s.SetDefaultEventuallyPollingInterval(often)
	return s
}

// Real controllers and real agents create, scale and repair a cluster, then delete it.
func TestClusterLifecycle(t *testing.T) {
	s := newScenario(t, workload.Options{})
	s.begin(simulation.Cluster{Name: name, ControlPlanes: 1, Change: fast})
	s.grow()
	dead := s.lose()
	s.recover(dead)
	s.shrink()
	s.end()
}

// step runs a function and logs how long it took.
func (s *scenario) step(what string, do func()) {
	s.t.Helper()
	began := time.Now()
	do()
	s.t.Logf("%6.1f s  %s", time.Since(began).Seconds(), what)
}

func (s *scenario) eventually(check func(context.Context) error) {
	s.t.Helper()
	s.Eventually(func() error { return check(s.t.Context()) }).Should(Succeed())
}

func (s *scenario) begin(cluster simulation.Cluster) {
	s.step("6 hosts enrolled and free", func() {
		s.Expect(s.Fleet.PowerOn(s.t.Context(), 0)).To(Succeed())
		s.eventually(func(ctx context.Context) error { return s.CheckFreeHosts(ctx, hosts) })
	})
	s.step("1 control plane: KubeadmControlPlane ready, cluster available", func() {
		s.Expect(s.Create(s.t.Context(), cluster)).To(Succeed())
		s.eventually(func(ctx context.Context) error { return s.CheckRunning(ctx, name, 1) })
		s.Eventually(func() *int32 { return s.controlPlane().Status.ReadyReplicas }).Should(HaveValue(BeEquivalentTo(1)))
	})
}

// fast shortens the time after which a host that does not report counts as disconnected.
func fast(object *unstructured.Unstructured) error {
	switch object.GetKind() {
	case "ElementalCluster":
		return unstructured.SetNestedField(object.Object, int64(20), "spec", "controlPlaneEndpointPolicy", "host", "failover", "afterSeconds")
	case "ElementalMachineTemplate":
		return unstructured.SetNestedField(object.Object, int64(20), "spec", "template", "spec", "release", "disconnectedTimeoutSeconds")
	}
	return nil
}

func (s *scenario) controlPlane() *controlplanev1.KubeadmControlPlane {
	s.t.Helper()
	kcp := &controlplanev1.KubeadmControlPlane{}
	s.Expect(s.Admin.Get(s.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: name + "-control-plane"}, kcp)).To(Succeed())
	return kcp
}

func (s *scenario) scale(controlPlanes int32) {
	s.t.Helper()
	kcp := s.controlPlane()
	before := kcp.DeepCopy()
	kcp.Spec.Replicas = &controlPlanes
	s.Expect(s.Admin.Patch(s.t.Context(), kcp, client.MergeFrom(before))).To(Succeed())
}

func (s *scenario) grow() {
	s.step("3 control planes and 2 workers: all Nodes ready", func() {
		s.scale(3)
		workers := &clusterv1.MachineDeployment{}
		s.Expect(s.Admin.Get(s.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: name + "-md-0"}, workers)).To(Succeed())
		before := workers.DeepCopy()
		workers.Spec.Replicas = new(int32(2))
		s.Expect(s.Admin.Patch(s.t.Context(), workers, client.MergeFrom(before))).To(Succeed())
		s.eventually(func(ctx context.Context) error { return s.CheckRunning(ctx, name, 5) })
	})
}

func (s *scenario) endpoint() (clusterv1.APIEndpoint, *fleet.Host) {
	s.t.Helper()
	at, host, err := s.Endpoint(s.t.Context(), name)
	s.Expect(err).NotTo(HaveOccurred())
	return at, host
}

// machineOf is the Machine on a virtual host.
func (s *scenario) machineOf(host *fleet.Host) *clusterv1.Machine {
	s.t.Helper()
	all, err := s.Machines(s.t.Context(), name)
	s.Expect(err).NotTo(HaveOccurred())
	for i := range all {
		for _, address := range all[i].Status.Addresses {
			if address.Address == host.Address.String() {
				return &all[i]
			}
		}
	}
	s.t.Fatalf("no Machine is on host %s", host.Name)
	return nil
}

func (s *scenario) movedFrom(former clusterv1.APIEndpoint) {
	s.t.Helper()
	s.Eventually(func() clusterv1.APIEndpoint {
		at, _ := s.endpoint()
		return at
	}).ShouldNot(Equal(former))
}

func (s *scenario) createHealthChecks() {
	s.t.Helper()
	s.Expect(s.CreateHealthChecks(s.t.Context(), simulation.Cluster{Name: name, Values: map[string]string{
		"UNHEALTHY_SECONDS": "10", "RECOVERY_SECONDS": "10", "MAX_UNHEALTHY_WORKERS": "100%",
	}})).To(Succeed())
}

// lose takes the power from the host that the endpoint is.
func (s *scenario) lose() *fleet.Host {
	s.t.Helper()
	s.createHealthChecks()
	former, dead := s.endpoint()
	s.Expect(dead).NotTo(BeNil(), former)
	machine := s.machineOf(dead)
	s.step("the endpoint's host has lost its power: the endpoint has moved", func() {
		dead.PowerOff()
		_, err := net.DialTimeout("tcp", former.String(), time.Second)
		s.Expect(err).To(HaveOccurred(), "a dead host serves nobody")
		s.movedFrom(former)
	})
	s.step("its Machine was replaced, all Nodes ready", func() {
		s.Eventually(func() error {
			return s.Admin.Get(s.t.Context(), client.ObjectKeyFromObject(machine), &clusterv1.Machine{})
		}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		s.eventually(func(ctx context.Context) error { return s.CheckRunning(ctx, name, 5) })
	})
	return dead
}

func (s *scenario) recover(dead *fleet.Host) {
	s.step("the dead host is back, and was reset", func() {
		s.eventually(func(ctx context.Context) error { return s.CheckFreeHosts(ctx, 0) })
		dead.PowerOn()
		s.eventually(func(ctx context.Context) error { return s.CheckFreeHosts(ctx, 1) })
	})
}

// shrink has the endpoint's own Machine go first: a planned move.
func (s *scenario) shrink() {
	former, host := s.endpoint()
	s.Expect(host).NotTo(BeNil())
	machine := s.machineOf(host)
	before := machine.DeepCopy()
	machine.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: ""}
	s.Expect(s.Admin.Patch(s.t.Context(), machine, client.MergeFrom(before))).To(Succeed())
	s.step("scaled from 3 control planes to 1, the endpoint's first: endpoint moved", func() {
		s.scale(1)
		s.movedFrom(former)
	})
	s.step("all Nodes ready, hosts reset", func() {
		s.eventually(func(ctx context.Context) error { return s.CheckRunning(ctx, name, 3) })
		s.eventually(func(ctx context.Context) error { return s.CheckFreeHosts(ctx, 3) })
	})
	s.Expect(s.isProbed()).To(BeTrue())
}

// isProbed reports whether Cluster API reaches the API server.
func (s *scenario) isProbed() bool {
	s.t.Helper()
	return meta.IsStatusConditionTrue(s.cluster().Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
}

func (s *scenario) cluster() *clusterv1.Cluster {
	s.t.Helper()
	c := &clusterv1.Cluster{}
	s.Expect(s.Admin.Get(s.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: name}, c)).To(Succeed())
	return c
}

func (s *scenario) end() {
	s.step("cluster deleted, all hosts free and clean", func() {
		s.Expect(s.Admin.Delete(s.t.Context(), s.cluster())).To(Succeed())
		s.eventually(func(ctx context.Context) error { return s.CheckFreeHosts(ctx, hosts) })
		s.Eventually(func() error {
			return s.Admin.Get(s.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: name}, &clusterv1.Cluster{})
		}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
	for _, h := range s.Fleet.Hosts() {
		for _, port := range []string{"6443", "2379"} {
			_, err := net.DialTimeout("tcp", net.JoinHostPort(h.Address.String(), port), time.Second)
			s.Expect(err).To(HaveOccurred(), "host %s serves nobody any more", h.Name)
		}
	}
}
