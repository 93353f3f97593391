package etcdrestore_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Without confirmation there is a plan, and nothing else happens.
func TestThreat71_Unconfirmed(t *testing.T) {
	f := newFixture(t)
	f.expect(no, infrav1.RestoreNotConfirmedReason)
	f.Expect(f.restore.Status.Plan.HostName).To(Equal("h"))
	f.Expect(f.restore.Status.Plan.Snapshot.SHA256).To(Equal(strings.Repeat("a", 64)))
	f.Expect(f.restore.Status.Plan.Steps).To(ContainElement(ContainSubstring("is lost")))
	f.Expect(f.restore.Spec.Request).To(BeNil())
	f.expectPaused(false)
	f.Expect(f.operation().Type).To(Equal(protocol.OperationBootstrap))
}

func TestRestore(t *testing.T) {
	f := newFixture(t)
	f.confirm()
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.expectPaused(true)
	op := f.operation()
	f.Expect(op.Type).To(Equal(protocol.OperationEtcdRestore), "it begins although the Cluster is paused")
	f.Expect(op.EtcdRestore).To(Equal(&protocol.EtcdRestore{
		SnapshotID: "1", SHA256: strings.Repeat("a", 64), Cluster: protocol.EtcdCluster{Namespace: f.Namespace, Name: "c"},
	}))
	f.Expect(f.restore.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))

	f.report(infrav1.OperationRunning, "swap", "")
	f.expect(no, infrav1.RestoringReason)
	f.expectPaused(true)
	f.report(infrav1.OperationSucceeded, "", "etcd serves the snapshot 1")
	f.expect(yes, infrav1.RestoredReason)
	f.expectPaused(false)
	f.Expect(f.restore.Annotations).NotTo(HaveKey(clusterctlv1.BlockMoveAnnotation))
	f.Expect(f.restore.Finalizers).To(BeEmpty())
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Normal Restored")))
}

// How the Cluster goes on depends on what the host says.
func TestFailures(t *testing.T) {
	for message, test := range map[string]struct {
		reason string
		paused bool
	}{
		protocol.RestoreChangedNothing.Message("the disk lacks space"): {infrav1.RestoreFailedReason, false},
		protocol.RestoreRolledBack.Message("etcd did not answer"):      {infrav1.RestoreFailedReason, false},
		protocol.RestoreLeftBroken.Message("etcd does not answer"):     {infrav1.RestoreLeftBrokenReason, true},
		"something else": {infrav1.RestoreLeftBrokenReason, true},
	} {
		t.Run(message, func(t *testing.T) {
			f := newFixture(t)
			f.confirm()
			f.reconcile()
			f.report(infrav1.OperationFailed, "gate", message)
			f.expect(no, test.reason)
			f.expectPaused(test.paused)
			f.Expect(f.Events()).To(ContainElement(ContainSubstring("Warning " + test.reason)))
			f.Delete(f.restore)
			f.reconcile()
			f.expectPaused(false)
			f.Expect(f.Exists(f.restore)).To(BeFalse())
		})
	}
}

// A restore that has ended is never begun again: neither without its status, nor without what
// the host remembers.
func TestThreat71_Once(t *testing.T) {
	f := newFixture(t)
	f.confirm()
	f.reconcile()
	f.report(infrav1.OperationSucceeded, "", "")
	f.reconcile()
	f.Expect(f.restore.Spec.Request.Result).To(Equal(infrav1.EtcdRestoreSucceeded))
	controllertest.Change(f.Fixture, f.host, func(h *infrav1.ElementalHost) { h.Spec.EtcdRestore = nil })
	f.Report(f.host, func(status *infrav1.ElementalHostStatus) { status.Operations = status.Operations[:1] })
	controllertest.ChangeStatus(f.Fixture, f.restore, func(r *infrav1.ElementalEtcdRestore) { r.Status = infrav1.ElementalEtcdRestoreStatus{} })
	f.expect(yes, infrav1.RestoredReason)
	f.expectPaused(false)
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
}

// A manager that ends before or after any of its writes, and one that takes over, do the same.
func TestInterruptions(t *testing.T) {
	for _, moment := range []controllertest.Moment{controllertest.BeforeWrite, controllertest.AfterWrite} {
		t.Run(string(moment), func(t *testing.T) {
			for lost := 1; ; lost++ {
				f := newFixture(t)
				f.confirm()
				f.Client.FailWrite(lost, moment)
				for range 2 { // the beginning, and the end
					f.reconcileAgain()
					f.Expect(f.host.Spec.EtcdRestore.ID).To(Equal(f.restore.Spec.Request.ID))
					f.report(infrav1.OperationSucceeded, "", "")
				}
				written := len(f.Client.Writes())
				f.expect(yes, infrav1.RestoredReason)
				f.expectPaused(false)
				f.Expect(f.restore.Finalizers).To(BeEmpty())
				if lost > written {
					f.Expect(lost).To(BeNumerically(">", 7), "writes of a restore")
					return
				}
			}
		})
	}
}

// A Cluster that somebody else has paused is not touched.
func TestForeignPause(t *testing.T) {
	f := newFixture(t)
	f.confirm()
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.expect(no, infrav1.RestoreRefusedReason)
	f.Expect(f.restore.Spec.Request).To(BeNil())
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
	f.Delete(f.restore)
	f.reconcile()
	f.Refresh(f.cluster)
	f.Expect(*f.cluster.Spec.Paused).To(BeTrue())
}

// The deletion waits for what the host does, and withdraws what it can't have begun.
func TestDeletion(t *testing.T) {
	f := newFixture(t)
	f.confirm()
	f.reconcile()
	f.Delete(f.restore)
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.expectPaused(true)
	f.SetConnection(f.host, infrav1.ConnectionDisconnected)
	f.reconcile()
	f.Expect(f.Exists(f.restore)).To(BeFalse())
	f.expectPaused(false)
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
}

// Nothing of a restore changes once it is confirmed, and it is confirmed by the name of the
// Cluster only.
func TestThreat71_Validation(t *testing.T) {
	f := newFixture(t)
	change := func(change func(r *infrav1.ElementalEtcdRestore)) error {
		f.Refresh(f.restore)
		before := f.restore.DeepCopy()
		change(f.restore)
		return f.Admin.Patch(f.Ctx, f.restore, client.MergeFrom(before))
	}
	f.Expect(change(func(r *infrav1.ElementalEtcdRestore) { r.Spec.Confirm = "d" })).To(MatchError(ContainSubstring("confirm must be the name of the Cluster")))
	f.Expect(change(func(r *infrav1.ElementalEtcdRestore) { r.Spec.Source.Snapshot.ID = "2" })).To(MatchError(ContainSubstring("create another")))
	f.Expect(change(func(r *infrav1.ElementalEtcdRestore) { r.Spec.Source.Snapshot = nil })).NotTo(Succeed())
	f.Expect(change(func(r *infrav1.ElementalEtcdRestore) { r.Spec.ReplaceHealthy = new(true) })).To(Succeed())
	f.confirm()
	for _, forbidden := range []func(r *infrav1.ElementalEtcdRestore){
		func(r *infrav1.ElementalEtcdRestore) { r.Spec.ReplaceHealthy = nil },
		func(r *infrav1.ElementalEtcdRestore) { r.Spec.ReplaceHealthy = new(false) },
		func(r *infrav1.ElementalEtcdRestore) { r.Spec.Confirm = "" },
	} {
		f.Expect(change(forbidden)).To(MatchError(ContainSubstring("a confirmed restore can't change")))
	}
	f.reconcile()
	f.Expect(change(func(r *infrav1.ElementalEtcdRestore) { r.Spec.Request = nil })).To(MatchError(ContainSubstring("the request can't change")))
}
