package etcdrestore_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// later is a fixture with a worker that became a Node after the snapshot.
type later struct {
	*fixture

	worker *infrav1.ElementalHost
}

func newLater(t *testing.T) *later {
	t.Helper()
	f := &later{fixture: newFixture(t)}
	f.worker = f.Host("w", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "claim-w", ClusterName: "c", MachineName: "machine-w", Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset", "Reboot"}}
		h.Status.Operations = []infrav1.HostOperation{{
			Type: infrav1.OperationBootstrap, ID: "claim-w", State: infrav1.OperationSucceeded, FinishedAt: metav1.NewTime(f.Clock.Now().Add(-time.Minute)),
		}}
	})
	return f
}

// serve has the restore begin and the host report that etcd serves the snapshot.
func (f *later) serve() {
	f.T.Helper()
	f.confirm()
	f.reconcile()
	f.report(infrav1.OperationSucceeded, "", "etcd serves the snapshot")
}

// reportReboot records the state of the worker's reboot.
func (f *later) reportReboot(state infrav1.OperationState) {
	f.T.Helper()
	f.Refresh(f.worker)
	f.Report(f.worker, func(status *infrav1.ElementalHostStatus) {
		op := infrav1.HostOperation{Type: infrav1.OperationReboot, ID: f.worker.Spec.Reboot.ID, State: state, StartedAt: metav1.NewTime(f.Clock.Now())}
		if state != infrav1.OperationRunning {
			op.FinishedAt = metav1.NewTime(f.Clock.Now())
		}
		controllertest.SetOperation(status, op)
	})
}

// The worker reboots once etcd serves the snapshot, and the Cluster stays paused until its Node had time to
// register: Cluster API would have a Machine replaced whose Node is not there.
func TestLaterNodesRegisterAgain(t *testing.T) {
	f := newLater(t)
	f.expect(no, infrav1.RestoreNotConfirmedReason)
	f.Expect(f.restore.Status.Plan.Steps).To(ContainElement(ContainSubstring("The hosts w became Nodes after the snapshot")))
	f.confirm()
	f.reconcile()
	f.Refresh(f.worker)
	f.Expect(f.worker.Spec.Reboot).To(BeNil(), "the former data may still be served")
	f.report(infrav1.OperationSucceeded, "", "etcd serves the snapshot")
	f.expect(no, infrav1.RestoringReason)
	f.expectPaused(true)
	f.Refresh(f.worker)
	op := plan.For(f.worker, plan.Site{}, plan.Cluster{Infra: f.infra, Paused: true}).Operation
	f.Expect(op.Type).To(Equal(protocol.OperationReboot))

	f.reportReboot(infrav1.OperationRunning)
	f.SetConnection(f.worker, infrav1.ConnectionDisconnected)
	f.expect(no, infrav1.RestoringReason)
	f.reportReboot(infrav1.OperationSucceeded)
	f.expect(no, infrav1.RestoringReason)
	f.Clock.Step(61 * time.Second)
	f.expect(yes, infrav1.RestoredReason)
	f.expectPaused(false)
}

// Nobody waits for a host that can't come back, and no longer than 15 minutes for another one.
func TestLaterNodesThatStayAway(t *testing.T) {
	for name, test := range map[string]func(f *later){
		"it is away": func(f *later) { f.SetConnection(f.worker, infrav1.ConnectionDisconnected) },
		"the reboot fails": func(f *later) {
			f.reconcile()
			f.reportReboot(infrav1.OperationFailed)
		},
		"its clock is wrong": func(f *later) {
			f.reconcile()
			f.Clock.Step(10 * time.Hour)
			f.reportReboot(infrav1.OperationSucceeded)
			f.Clock.Step(-10*time.Hour + 15*time.Minute)
		},
		"it reboots for ever": func(f *later) {
			f.reconcile()
			f.reportReboot(infrav1.OperationRunning)
			f.expect(no, infrav1.RestoringReason)
			f.Clock.Step(15 * time.Minute)
		},
		"it is claimed anew": func(f *later) {
			f.reconcile()
			controllertest.Change(f.Fixture, f.worker, func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "another" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLater(t)
			f.serve()
			test(f)
			f.expect(yes, infrav1.RestoredReason)
			f.expectPaused(false)
			f.Refresh(f.worker)
			f.Expect(f.worker.Spec.Reboot).NotTo(BeNil(), "it reboots when it is back")
		})
	}
}

// A restore that is deleted meanwhile has the worker reboot all the same, and ends the pause.
func TestAbandonedWithLaterNodes(t *testing.T) {
	f := newLater(t)
	f.serve()
	f.Delete(f.restore)
	f.reconcile()
	f.Expect(f.Exists(f.restore)).To(BeFalse())
	f.expectPaused(false)
	f.Refresh(f.worker)
	f.Expect(f.worker.Spec.Reboot.RestoreName).To(Equal("r"))
}

// A manager that ends before or after any of its writes does the same.
func TestInterruptionsWithLaterNodes(t *testing.T) {
	restore := func(t *testing.T, lost int, moment controllertest.Moment) (writes int) {
		f := newLater(t)
		f.confirm()
		f.Client.FailWrite(lost, moment)
		f.reconcileAgain()
		f.report(infrav1.OperationSucceeded, "", "")
		f.reconcileAgain()
		f.reportReboot(infrav1.OperationSucceeded)
		f.Clock.Step(2 * time.Minute)
		f.reconcileAgain()
		writes = len(f.Client.Writes())
		f.expect(yes, infrav1.RestoredReason)
		f.expectPaused(false)
		f.Expect(f.restore.Finalizers).To(BeEmpty())
		return writes
	}
	for lost, moment := range controllertest.Crashes(restore(t, 0, controllertest.AfterWrite)) {
		t.Run(fmt.Sprintf("%s %d", moment, lost), func(t *testing.T) { restore(t, lost, moment) })
	}
}
