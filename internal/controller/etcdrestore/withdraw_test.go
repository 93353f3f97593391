package etcdrestore_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A restore that is deleted before its host has begun is taken out of the plan at once, and let go when
// the host must have that plan: also while something keeps the host from beginning.
func TestThreat71_Withdrawn(t *testing.T) {
	for name, change := range map[string]func(h *infrav1.ElementalHost){
		"about to begin": func(*infrav1.ElementalHost) {},
		"in maintenance": func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"} },
		"paused":         func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} },
		"fenced":         func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "burnt"} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.confirm()
			f.reconcile()
			controllertest.Change(f.Fixture, f.host, change)
			f.Delete(f.restore)
			f.expect(no, infrav1.RestoreWaitingForHostReason)
			f.expectPaused(true)
			controllertest.Change(f.Fixture, f.host, func(h *infrav1.ElementalHost) {
				h.Spec.Maintenance, h.Spec.Fence = nil, nil
				delete(h.Annotations, clusterv1.PausedAnnotation)
			})
			f.Expect(f.operation()).NotTo(HaveField("Type", protocol.OperationEtcdRestore))
			f.Clock.Step(4*time.Minute - time.Second)
			f.expect(no, infrav1.RestoreWaitingForHostReason)
			f.Clock.Step(2 * time.Second)
			f.reconcile()
			f.Expect(f.Exists(f.restore)).To(BeFalse())
			f.expectPaused(false)
			f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
		})
	}
}

// A host that had begun before it learned that the request was withdrawn goes on, and its result counts.
func TestThreat90_BegunBeforeTheWithdrawal(t *testing.T) {
	f := newSeveral(t)
	f.confirm()
	f.reconcile()
	f.halted()
	f.reconcile()
	f.Delete(f.restore)
	f.reconcile()
	f.report(infrav1.OperationRunning, "swap", "")
	f.Expect(f.operation().Type).To(Equal(protocol.OperationEtcdRestore))
	f.Clock.Step(time.Hour)
	f.expect(no, infrav1.RestoringReason)
	f.expectPaused(true)
	f.expectDeleted(false)
	f.report(infrav1.OperationSucceeded, "", "")
	f.reconcile()
	f.Expect(f.Exists(f.restore)).To(BeFalse())
	f.expectDeleted(true)
	f.expectPaused(false)
	f.Expect(f.operationOf(f.others[0]).Type).To(Equal(protocol.OperationControlPlaneHalt))
}

// A host that was away gets the time to report what it has begun when it is back, and begins nothing.
func TestThreat90_BackAfterTheWithdrawal(t *testing.T) {
	f := newSeveral(t)
	f.confirm()
	f.reconcile()
	f.halted()
	f.reconcile()
	f.SetConnection(f.host, infrav1.ConnectionDisconnected)
	f.Delete(f.restore)
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.Clock.Step(time.Hour)
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.SetConnection(f.host, infrav1.ConnectionConnected)
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.Expect(f.operation().Type).To(Equal(protocol.OperationBootstrap))
	f.Clock.Step(4*time.Minute + time.Second)
	f.reconcile()
	f.Expect(f.Exists(f.restore)).To(BeFalse())
	f.expectPaused(false)
	f.expectDeleted(false)
	f.Expect(f.operationOf(f.others[0]).Type).To(Equal(protocol.OperationControlPlaneStart))
}
