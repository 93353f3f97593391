package upgrade_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// hold labels the Cluster, or removes the label.
func (f *fixture) hold(held bool) {
	f.T.Helper()
	controllertest.Change(f.Fixture, &clusterv1.Cluster{ObjectMeta: f.Meta("c")}, func(c *clusterv1.Cluster) {
		delete(c.Labels, infrav1.HoldUpgradeLabel)
		if held {
			c.Labels = map[string]string{infrav1.HoldUpgradeLabel: "wave-2"}
		}
	})
}

// staged reports what the host has of the bundle that it is to stage.
func (n *node) staged(state infrav1.BundleState, message string) {
	n.T.Helper()
	n.reconcile()
	n.Report(n.host, func(s *infrav1.ElementalHostStatus) {
		s.Bundle = &infrav1.HostBundleStatus{SHA256: digest, Version: wanted, State: state, Message: message}
	})
}

// A cluster of one host that is held back gets its bundle, and its Machine is not marked.
func TestTheOnlyMachineIsHeldBack(t *testing.T) {
	s := newSingle(t)
	f := s.fixture
	s.healthy(yes, yes)
	f.hold(true)
	f.Expect(s.expect(no, infrav1.UpgradeStagingReason)).To(ContainSubstring("is to fetch the bundle of Kubernetes v1.36.3; then the label"))
	f.Expect(s.host.Spec.Bundle.SHA256).To(Equal(digest))
	s.staged(infrav1.BundleStaging, "3/10")
	f.Expect(s.expect(no, infrav1.UpgradeStagingReason)).To(Equal("Host h1 fetches the bundle of Kubernetes v1.36.3: 3/10"))
	f.SetConnection(s.host, infrav1.ConnectionDisconnected)
	f.Expect(s.expect(no, infrav1.UpgradeHostNotConnectedReason)).To(ContainSubstring("fetches the bundle of Kubernetes v1.36.3 when it is connected"))
	f.SetConnection(s.host, infrav1.ConnectionConnected)
	s.staged(infrav1.BundleStaged, "")
	f.Expect(s.expect(no, infrav1.UpgradeHeldReason)).To(Equal("Host h1 has the bundle of Kubernetes v1.36.3, and the label " +
		"infrastructure.cluster.x-k8s.io/hold-upgrade of Cluster c holds its upgrade back; remove the label to release it"))
	f.Client.Forget()
	f.Expect(s.reconcile()).To(Equal(ctrl.Result{}), "the watch wakes it")
	f.Expect(f.Client.Writes()).To(BeEmpty())
	f.Expect(s.isMarked()).To(BeFalse())
	f.Expect(s.surge()).To(ContainSubstring("Machines are not replaced"))

	f.hold(false)
	s.expect(no, infrav1.UpgradeWaitingForClusterAPIReason)
	f.Expect(s.isMarked()).To(BeTrue())
}

// A Machine that Cluster API has marked waits while its cluster is held back, and an upgrade
// that has begun goes on.
func TestAMarkedMachineIsHeldBack(t *testing.T) {
	f := newFixture(t)
	f.release()
	f.hold(true)
	n, other := f.node("h1", controllertest.ControlPlane), f.node("h2", controllertest.ControlPlane)
	n.ask()
	n.expect(no, infrav1.UpgradeStagingReason)
	n.staged(infrav1.BundleStaged, "")
	n.expect(no, infrav1.UpgradeHeldReason)
	f.Expect(n.host.Spec.NodeUpgrade).To(BeNil())
	f.Expect(n.host.Spec.Bundle.SHA256).To(Equal(digest))

	f.hold(false)
	n.expect(no, infrav1.UpgradingReason)
	id := n.host.Spec.NodeUpgrade.ID
	f.hold(true)
	n.report(infrav1.OperationRunning, "kubeadm", "")
	n.expect(no, infrav1.UpgradingReason)
	n.report(infrav1.OperationFailed, "kubelet", "rolled back: the kubelet did not start")
	n.expect(no, infrav1.UpgradeRolledBackReason)
	f.Expect(n.host.Spec.NodeUpgrade.ID).To(Equal(id))
	other.ask()
	other.staged(infrav1.BundleStaged, "")
	other.expect(no, infrav1.UpgradeHeldReason)

	t.Log("A retry is of an upgrade that has begun")
	controllertest.Change(f.Fixture, n.machine, func(m *infrav1.ElementalMachine) { m.Annotations[infrav1.RetryUpgradeAnnotation] = "" })
	n.expect(no, infrav1.UpgradingReason)
	f.Expect(n.host.Spec.NodeUpgrade.ID).NotTo(Equal(id))
}

// behind is a cache that does not have the labels of Clusters yet.
type behind struct{ client.Client }

func (b behind) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := b.Client.Get(ctx, key, o, options...)
	if c, ok := o.(*clusterv1.Cluster); ok {
		c.Labels = nil
	}
	return err
}

// Who labels Clusters and then changes their version must not race the cache.
func TestAHoldThatTheCacheDoesNotHave(t *testing.T) {
	s := newSingle(t)
	s.healthy(yes, yes)
	s.hold(true)
	s.staged(infrav1.BundleStaged, "")
	s.reconciler.Client = behind{s.reconciler.Client}
	s.expect(no, infrav1.UpgradeHeldReason)
	s.Expect(s.isMarked()).To(BeFalse())
	s.ask()
	s.expect(no, infrav1.UpgradeHeldReason)
	s.Expect(s.host.Spec.NodeUpgrade).To(BeNil())
}

// TestReleaseWakes tests with a real manager that the removal of the label releases a host.
func TestReleaseWakes(t *testing.T) {
	f := newFixture(t)
	f.release()
	f.hold(true)
	n := f.node("h1", controllertest.ControlPlane)
	n.ask()
	n.staged(infrav1.BundleStaged, "")
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(env.Config, env.ManagerOptions())
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(index.Register(ctx, mgr.GetFieldIndexer())).To(Succeed())
	f.reconciler.Client = mgr.GetClient()
	f.Expect(f.reconciler.SetupWithManager(ctx, mgr, controller.Options{})).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		f.Expect(<-ended).To(Succeed())
	}()
	reason := func() string {
		f.Refresh(n.machine)
		if c := n.condition(); c != nil {
			return c.Reason
		}
		return ""
	}
	f.Eventually(reason, time.Minute).Should(Equal(infrav1.UpgradeHeldReason))
	f.hold(false)
	f.Eventually(reason, time.Minute).Should(Equal(infrav1.UpgradingReason))
	f.Eventually(f.Events, time.Minute).Should(ContainElement(HavePrefix(corev1.EventTypeNormal)))
}
