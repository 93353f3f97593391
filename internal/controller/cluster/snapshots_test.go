package cluster_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// snapshotted asks for hourly snapshots.
func snapshotted(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	c.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{Schedule: infrav1.EtcdSnapshotSchedule{IntervalSeconds: new(int32(3600))}}
}

// snapshotHost creates a control-plane host of the cluster that can take snapshots.
func (f *fixture) snapshotHost(name string) *infrav1.ElementalHost {
	return f.host(name, "", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "id", ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityEtcdSnapshot)}}
		h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: metav1.NewTime(f.Clock.Now())}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id", State: infrav1.OperationSucceeded}}
	})
}

// requested is the request in spec.
func (f *fixture) requested() *infrav1.EtcdSnapshotRequest {
	f.T.Helper()
	f.Refresh(f.infra)
	f.Expect(f.infra.Spec.EtcdSnapshotRecord).NotTo(BeNil())
	return f.infra.Spec.EtcdSnapshotRecord.Request
}

func TestSnapshots(t *testing.T) {
	f := newFixture(t, kubeadm, snapshotted)
	metrics, err := cluster.NewMetrics(prometheus.NewRegistry())
	f.Expect(err).NotTo(HaveOccurred())
	f.reconciler.Metrics = metrics
	f.reconcile()
	f.ExpectCondition(f.infra, infrav1.EtcdSnapshotsReadyCondition, no, infrav1.WaitingForControlPlaneReason)
	hosts := map[string]*infrav1.ElementalHost{"a": f.snapshotHost("a"), "b": f.snapshotHost("b")}
	f.reconcile()
	// The test begins just after a time of the schedule, which follows from the random namespace, so
	// that no other one comes in between.
	f.Clock.SetTime(f.requested().ScheduledAt.Add(time.Hour + time.Second))
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.EtcdSnapshotRecord = nil })
	f.Client.Forget()
	f.reconcile()
	first := f.requested()
	f.Expect(first.HostName).To(Equal("a"))
	f.ExpectCondition(f.infra, infrav1.EtcdSnapshotsReadyCondition, no, infrav1.EtcdSnapshotPendingReason)

	f.Report(hosts["a"], func(s *infrav1.ElementalHostStatus) {
		s.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Failure: &infrav1.HostEtcdSnapshotFailure{
			ID: infrav1.EtcdSnapshotID(first.ScheduledAt), Message: "no space left",
		}}
	})
	f.reconcile()
	f.Expect(f.ExpectCondition(f.infra, infrav1.EtcdSnapshotsReadyCondition, no, infrav1.EtcdSnapshotFailedReason).Message).To(ContainSubstring("no space left"))
	f.Clock.Step(time.Minute)
	f.reconcile()
	f.Expect(f.requested().HostName).To(Equal("b"))
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("Host a has not taken snapshot %s of etcd: no space left", infrav1.EtcdSnapshotID(first.ScheduledAt))))
	f.Expect(testutil.ToFloat64(metrics.Snapshots("failed"))).To(BeEquivalentTo(1))

	f.Report(hosts["b"], func(s *infrav1.ElementalHostStatus) {
		s.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{{
			ID: infrav1.EtcdSnapshotID(first.ScheduledAt), SHA256: strings.Repeat("a", 64), SizeBytes: 42,
		}}}
	})
	after := f.reconcile().RequeueAfter
	f.Expect(f.requested()).To(BeNil())
	f.Expect(f.infra.Spec.EtcdSnapshotRecord.Last.HostName).To(Equal("b"))
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("Host b has taken snapshot %s of etcd, 42 bytes", infrav1.EtcdSnapshotID(first.ScheduledAt))))
	f.Expect(testutil.ToFloat64(metrics.Snapshots("taken"))).To(BeEquivalentTo(1))
	f.Expect(f.ExpectCondition(f.infra, infrav1.EtcdSnapshotsReadyCondition, yes, infrav1.EtcdSnapshotTakenReason).Message).To(ContainSubstring("on host b"))

	f.Client.Forget()
	f.reconcileUntilStable()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "a new leader writes nothing")
	f.Clock.Step(after)
	f.reconcile()
	f.Expect(f.requested().HostName).To(Equal("a"), "the next one is due, and it is the other host's turn")
	f.ExpectCondition(f.infra, infrav1.EtcdSnapshotsReadyCondition, yes, infrav1.EtcdSnapshotTakenReason)

	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.EtcdSnapshots = nil })
	f.reconcileUntilStable()
	f.Expect(f.infra.Spec.EtcdSnapshotRecord).To(BeNil())
	f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.EtcdSnapshotsReadyCondition)).To(BeNil())
}

// No snapshot is asked for while the Cluster is paused.
func TestNoSnapshotWhilePaused(t *testing.T) {
	f := newFixture(t, kubeadm, snapshotted)
	f.snapshotHost("a")
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.reconcileUntilStable()
	f.Expect(f.infra.Spec.EtcdSnapshotRecord).To(BeNil())
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(false) })
	f.reconcileUntilStable()
	f.Expect(f.requested().HostName).To(Equal("a"))
}
