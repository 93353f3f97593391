package etcdrestore_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// several is a fixture whose control plane has two more hosts, each with its Machine, and whose
// first host is the survivor.
type several struct {
	*fixture

	others   []*infrav1.ElementalHost
	machines []*clusterv1.Machine
}

func newSeveral(t *testing.T) *several {
	t.Helper()
	f := &several{fixture: newFixture(t)}
	for _, name := range []string{"a", "b"} {
		machine, _ := f.Machine("c", "machine-"+name, controllertest.ControlPlane)
		host := f.Host(name, func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + name, ClusterName: "c", MachineName: machine.Name, Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
			h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset", "ControlPlaneHalt"}}
			h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "claim-" + name, State: infrav1.OperationSucceeded}}
		})
		f.others, f.machines = append(f.others, host), append(f.machines, machine)
	}
	f.Report(f.host, func(status *infrav1.ElementalHostStatus) {
		status.Agent.Capabilities = append(status.Agent.Capabilities, "EtcdRestoreOwnData")
	})
	f.Delete(f.restore)
	f.reconcile()
	f.restore = &infrav1.ElementalEtcdRestore{ObjectMeta: f.Meta("r")}
	f.restore.Spec.ClusterName = "c"
	f.restore.Spec.Source.Survivor = &infrav1.EtcdRestoreSurvivor{HostName: "h"}
	f.Create(f.restore)
	return f
}

// reportOther records the state of an operation of another host.
func (f *several) reportOther(host *infrav1.ElementalHost, kind infrav1.OperationType, state infrav1.OperationState, message string) {
	f.T.Helper()
	f.Refresh(host)
	f.Report(host, func(status *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(status, infrav1.HostOperation{Type: kind, ID: host.Spec.ControlPlaneHalt.ID, State: state, Message: message})
	})
}

func (f *several) halted() {
	f.T.Helper()
	for _, host := range f.others {
		f.reportOther(host, infrav1.OperationControlPlaneHalt, infrav1.OperationSucceeded, "")
	}
}

// operationOf returns the operation in the plan of another host.
func (f *several) operationOf(host *infrav1.ElementalHost) *protocol.Operation {
	f.T.Helper()
	f.Refresh(host)
	f.Refresh(f.cluster)
	isPaused := f.cluster.Spec.Paused != nil && *f.cluster.Spec.Paused
	return plan.For(host, plan.Site{}, plan.Cluster{Infra: f.infra, Paused: isPaused}).Operation
}

// expectDeleted checks whether the Machines of the other hosts are deleted.
func (f *several) expectDeleted(deleted bool) {
	f.T.Helper()
	for _, machine := range f.machines {
		exists := f.Exists(machine)
		f.Expect(exists && machine.DeletionTimestamp.IsZero()).To(Equal(!deleted), "Machine %s", machine.Name)
		if exists && deleted {
			f.Expect(machine.Annotations).To(HaveKey(clusterv1.ExcludeNodeDrainingAnnotation))
		}
	}
}

// The host is asked only when all other control planes stand still, and their Machines are deleted
// before the Cluster goes on.
func TestThreat90_OthersAreHaltedFirst(t *testing.T) {
	f := newSeveral(t)
	f.expect(no, infrav1.RestoreNotConfirmedReason)
	f.Expect(f.restore.Status.Plan.Steps).To(ContainElement(ContainSubstring("a, b are halted")))
	f.confirm()
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.expectPaused(true)
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
	for _, host := range f.others {
		f.Expect(f.operationOf(host).Type).To(Equal(protocol.OperationControlPlaneHalt), "it begins although the Cluster is paused")
	}
	f.reportOther(f.others[0], infrav1.OperationControlPlaneHalt, infrav1.OperationSucceeded, "")
	f.reportOther(f.others[1], infrav1.OperationControlPlaneHalt, infrav1.OperationRunning, "")
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil(), "one of them still runs")
	f.halted()
	f.reconcile()
	op := f.operation()
	f.Expect(op.Type).To(Equal(protocol.OperationEtcdRestore))
	f.Expect(op.EtcdRestore).To(Equal(&protocol.EtcdRestore{OwnData: true, Cluster: protocol.EtcdCluster{Namespace: f.Namespace, Name: "c"}}))
	f.expectDeleted(false)

	f.report(infrav1.OperationSucceeded, "", "etcd serves the data")
	f.expect(yes, infrav1.RestoredReason)
	f.expectDeleted(true)
	f.expectPaused(false)
	for _, host := range f.others {
		f.Expect(f.operationOf(host).Type).To(Equal(protocol.OperationControlPlaneHalt), "they stay halted until their reset")
	}
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("MachineReplaced")))
}

// After a restore that failed, the others run again and nothing is deleted. The same holds if one of
// them can't be halted.
func TestOthersGoOn(t *testing.T) {
	for name, test := range map[string]func(f *several){
		"the restore failed": func(f *several) {
			f.halted()
			f.reconcile()
			f.report(infrav1.OperationFailed, "gate", protocol.RestoreRolledBack.Message("etcd did not answer"))
		},
		"one is well": func(f *several) {
			f.reportOther(f.others[0], infrav1.OperationControlPlaneHalt, infrav1.OperationSucceeded, "")
			f.reportOther(f.others[1], infrav1.OperationControlPlaneHalt, infrav1.OperationFailed, "etcd is well on this host")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSeveral(t)
			f.confirm()
			f.reconcile()
			test(f)
			f.expect(no, infrav1.RestoreFailedReason)
			f.expectDeleted(false)
			f.expectPaused(false)
			for _, host := range f.others {
				f.Expect(f.operationOf(host).Type).To(Equal(protocol.OperationControlPlaneStart))
				f.reportOther(host, infrav1.OperationControlPlaneStart, infrav1.OperationSucceeded, "")
				f.Expect(f.operationOf(host).Type).To(Equal(protocol.OperationBootstrap))
			}
		})
	}
}

// A host that is away is waited for, until a person says that it is off.
func TestThreat90_AwayIsNotOff(t *testing.T) {
	f := newSeveral(t)
	f.confirm()
	f.reconcile()
	f.reportOther(f.others[0], infrav1.OperationControlPlaneHalt, infrav1.OperationSucceeded, "")
	f.SetConnection(f.others[1], infrav1.ConnectionDisconnected)
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
	controllertest.Change(f.Fixture, f.others[1], func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "burnt"} })
	f.reconcile()
	f.Expect(f.host.Spec.EtcdRestore).NotTo(BeNil())
	f.report(infrav1.OperationSucceeded, "", "")
	f.expect(yes, infrav1.RestoredReason)
	f.expectDeleted(true)
}

// A restore that is deleted never has the others serve beside the restored data: neither when the
// host has restored it, nor when nobody knows.
func TestThreat90_Abandoned(t *testing.T) {
	t.Run("restored", func(t *testing.T) {
		f := newSeveral(t)
		f.confirm()
		f.reconcile()
		f.halted()
		f.reconcile()
		f.report(infrav1.OperationSucceeded, "", "")
		f.Delete(f.restore)
		f.reconcile()
		f.Expect(f.Exists(f.restore)).To(BeFalse())
		f.expectDeleted(true)
		f.Expect(f.operationOf(f.others[0]).Type).To(Equal(protocol.OperationControlPlaneHalt))
	})
	t.Run("unknown", func(t *testing.T) {
		f := newSeveral(t)
		f.confirm()
		f.reconcile()
		f.halted()
		f.reconcile()
		f.SetConnection(f.host, infrav1.ConnectionDisconnected)
		f.Delete(f.restore)
		f.expect(no, infrav1.RestoreWaitingForHostReason)
		f.Expect(f.operationOf(f.others[0]).Type).To(Equal(protocol.OperationControlPlaneHalt))
		controllertest.Change(f.Fixture, f.host, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "burnt"} })
		f.reconcile()
		f.Expect(f.Exists(f.restore)).To(BeFalse())
		f.Expect(f.operationOf(f.others[0]).Type).To(Equal(protocol.OperationControlPlaneStart))
	})
	t.Run("before the host was asked", func(t *testing.T) {
		f := newSeveral(t)
		f.confirm()
		f.reconcile()
		f.halted()
		f.Delete(f.restore)
		f.reconcile()
		f.Expect(f.Exists(f.restore)).To(BeFalse())
		f.expectDeleted(false)
		f.expectPaused(false)
		f.Expect(f.operationOf(f.others[0]).Type).To(Equal(protocol.OperationControlPlaneStart))
	})
}

// A manager that ends before or after any of its writes does the same.
func TestInterruptionsWithOthers(t *testing.T) {
	restore := func(t *testing.T, lost int, moment controllertest.Moment) (writes int) {
		f := newSeveral(t)
		f.confirm()
		f.Client.FailWrite(lost, moment)
		f.reconcileAgain()
		f.halted()
		f.reconcileAgain()
		f.report(infrav1.OperationSucceeded, "", "")
		f.reconcileAgain()
		writes = len(f.Client.Writes())
		f.expect(yes, infrav1.RestoredReason)
		f.expectPaused(false)
		f.expectDeleted(true)
		f.Expect(f.restore.Finalizers).To(BeEmpty())
		return writes
	}
	for lost, moment := range controllertest.Crashes(restore(t, 0, controllertest.AfterWrite)) {
		t.Run(fmt.Sprintf("%s %d", moment, lost), func(t *testing.T) { restore(t, lost, moment) })
	}
}
