package host_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// requeueAfter reconciles a host once and returns the time until the next reconcile.
func (f *fixture) requeueAfter(h *infrav1.ElementalHost) time.Duration {
	f.T.Helper()
	result, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h)})
	f.Expect(err).NotTo(HaveOccurred())
	f.Refresh(h)
	return result.RequeueAfter
}

func TestMaintenance(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1")
	f.reconcile(h)
	f.Events()
	until := metav1.NewTime(f.Clock.Now().Add(time.Hour))
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
		h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "new disk", Until: until}
	})
	f.Expect(f.requeueAfter(h)).To(Equal(time.Hour))
	f.Expect(f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.MaintenanceReason).Message).To(ContainSubstring("new disk"))
	f.Expect(f.Events()).To(ConsistOf(And(HavePrefix("Normal Maintenance "), ContainSubstring("new disk"))))

	t.Log("Disconnecting in maintenance is no warning, and an unchanged host is not written")
	f.SetConnection(h, infrav1.ConnectionDisconnected)
	f.Clock.Step(59 * time.Minute)
	f.Client.Forget()
	f.Expect(f.requeueAfter(h)).To(Equal(time.Minute))
	f.Expect(f.Client.Writes()).To(BeEmpty())
	f.SetConnection(h, infrav1.ConnectionConnected)
	f.Events()

	t.Log("The maintenance ends at its time")
	f.Clock.Step(time.Minute)
	f.Expect(f.requeueAfter(h)).To(BeZero())
	f.Expect(h.InMaintenance()).To(BeFalse())
	f.Expect(h.Spec.Maintenance).NotTo(BeNil(), "the field belongs to whoever wrote it")
	f.ExpectCondition(h, infrav1.AvailableCondition, yes, infrav1.AvailableReason)
	f.Expect(f.Events()).To(ContainElement(HavePrefix("Normal MaintenanceEnded ")))

	t.Log("Without a time an administrator must end the maintenance")
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} })
	f.Expect(f.requeueAfter(h)).To(BeZero())
	f.Clock.Step(1000 * time.Hour)
	f.requeueAfter(h)
	f.Expect(h.InMaintenance()).To(BeTrue())
}

// A program that applies what is in git writes its fields again and again. After the end of a
// maintenance neither it nor the manager changes anything.
func TestMaintenanceInGitDoesNotFlap(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1")
	f.reconcile(h)
	apply := func(until time.Time) {
		t.Helper()
		desired := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": h.Name, "namespace": h.Namespace, "labels": map[string]any{"rack": "7"}},
			"spec":     map[string]any{"maintenance": map[string]any{"reason": "disk", "until": until.UTC().Format(time.RFC3339)}},
		}}
		desired.SetGroupVersionKind(infrav1.GroupVersion.WithKind("ElementalHost"))
		f.Expect(env.Client(t).Apply(t.Context(), client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner("git"), client.ForceOwnership)).To(Succeed())
	}
	until := f.Clock.Now().Add(time.Hour)
	apply(until)
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.MaintenanceReason)
	f.Clock.Step(time.Hour)
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.AvailableCondition, yes, infrav1.AvailableReason)
	ended, stored := f.Events(), h.ResourceVersion
	f.Expect(ended).To(ContainElement(HavePrefix("Normal MaintenanceEnded ")))
	for range 5 {
		f.Client.Forget()
		apply(until)
		f.reconcile(h)
		f.Clock.Step(time.Minute)
		f.Expect(f.Client.Writes()).To(BeEmpty())
		f.Expect(h.ResourceVersion).To(Equal(stored))
		f.Expect(f.Events()).To(BeEmpty())
	}

	t.Log("Another time begins another maintenance")
	apply(f.Clock.Now().Add(time.Hour))
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.MaintenanceReason)
}

func TestPausedHostsStayInMaintenance(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", func(h *infrav1.ElementalHost) {
		h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk", Until: metav1.NewTime(f.Clock.Now().Add(-time.Minute))}
	})
	f.Expect(f.requeueAfter(h)).To(BeZero())
	f.Expect(h.InMaintenance()).To(BeTrue())
}

func failures(n int32, claim string, at time.Time) func(*infrav1.ElementalHostStatus) {
	return func(s *infrav1.ElementalHostStatus) {
		s.Failures = &infrav1.HostFailures{Consecutive: n, LastOperationID: claim, LastTime: metav1.NewTime(at)}
	}
}

func TestQuarantineTimes(t *testing.T) {
	for n, want := range map[int32]time.Duration{
		1: 0, 2: 10 * time.Minute, 3: time.Hour, 4: 6 * time.Hour, 5: 24 * time.Hour, 99: 24 * time.Hour,
	} {
		t.Run(want.String(), func(t *testing.T) {
			f := newFixture(t)
			h := f.Host("h1")
			f.Report(h, failures(n, "c", f.Clock.Now().Add(-time.Minute)))
			if want == 0 {
				f.Expect(f.requeueAfter(h)).To(BeZero())
				f.Expect(h.Spec.Quarantine).To(BeNil(), "a single failure may be caused by the bootstrap data")
				return
			}
			f.Expect(f.requeueAfter(h)).To(Equal(want - time.Minute))
			f.Expect(h.Spec.Quarantine.Failures).To(Equal(n))
			f.Expect(h.Spec.Quarantine.Until.Time.Equal(f.Clock.Now().Add(want - time.Minute))).To(BeTrue())
			f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.QuarantinedReason)
			f.Expect(f.Events()).To(ContainElement(And(HavePrefix("Warning Quarantined "), ContainSubstring("bootstraps in a row failed"))))
		})
	}
}

func TestQuarantineBeginsOncePerFailure(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1")
	f.Report(h, failures(2, "second", f.Clock.Now()))
	f.reconcile(h)
	f.Expect(h.Spec.Quarantine).NotTo(BeNil())
	f.Client.Forget()
	f.reconcile(h)
	f.Expect(f.Client.Writes()).To(BeEmpty())

	t.Log("An administrator ends the quarantine by removing it")
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Quarantine = nil })
	f.reconcile(h)
	f.Expect(h.Spec.Quarantine).To(BeNil())
	f.ExpectCondition(h, infrav1.AvailableCondition, yes, infrav1.AvailableReason)

	t.Log("The next failure begins another quarantine, which ends at its time")
	f.Report(h, failures(3, "third", f.Clock.Now()))
	f.reconcile(h)
	f.Expect(h.Spec.Quarantine.Failures).To(Equal(int32(3)))
	f.Clock.Step(time.Hour)
	f.Events()
	f.reconcile(h)
	f.Expect(h.Spec.Quarantine).To(BeNil())
	f.Expect(f.Events()).To(ContainElement(HavePrefix("Normal QuarantineEnded ")))

	t.Log("After a success the second failure in a row begins a quarantine")
	f.Report(h, func(s *infrav1.ElementalHostStatus) { s.Failures = nil })
	f.reconcile(h)
	f.Report(h, failures(2, "another second", f.Clock.Now()))
	f.reconcile(h)
	f.Expect(h.Spec.Quarantine.Failures).To(Equal(int32(2)))

	t.Log("A longer quarantine that an administrator set is not shortened")
	long := metav1.NewTime(f.Clock.Now().Add(100 * time.Hour))
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Quarantine.Until = long })
	f.Report(h, failures(3, "another third", f.Clock.Now()))
	f.reconcile(h)
	f.Expect(h.Spec.Quarantine.Until.Time.Equal(long.Time)).To(BeTrue())
	f.Expect(h.Spec.Quarantine.Failures).To(Equal(int32(3)))
}

// A quarantine that would have ended while no manager was running does not begin.
func TestOldFailuresCauseNoQuarantine(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1")
	f.Report(h, failures(2, "c", f.Clock.Now().Add(-10*time.Minute)))
	f.Client.Forget()
	f.reconcile(h)
	f.Expect(h.Spec.Quarantine).To(BeNil())
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

// The end may be in the past, for example because of a wrong time zone.
func TestMaintenanceThatEndsInThePast(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1")
	f.reconcile(h)
	f.Events()
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
		h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk", Until: metav1.NewTime(f.Clock.Now().Add(-time.Hour))}
	})
	f.Expect(f.requeueAfter(h)).To(BeZero())
	f.Expect(h.InMaintenance()).To(BeFalse())
	f.Expect(h.Spec.Maintenance).NotTo(BeNil(), "the field belongs to whoever wrote it")
	f.Expect(f.Events()).To(ConsistOf(And(HavePrefix("Normal MaintenanceEnded "), ContainSubstring("until "))))
}

// If the Machine exists, the reconciler of ElementalMachines deletes it.
func TestFencedHostOfAMachineThatDoesNotExist(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", claimed(infrav1.ClaimBound), func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} })
	f.Cluster("c")
	owner, _ := f.Machine("c", "m")
	f.reconcile(h)
	f.Expect(h.Spec.Claim.Phase).To(Equal(infrav1.ClaimBound))
	f.ExpectCondition(h, infrav1.ReadyCondition, no, infrav1.FencedReason)
	f.Expect(f.Events()).To(BeEmpty(), "the host was created with the fence")

	f.Delete(owner)
	f.reconcile(h)
	f.Expect(h.Spec.Claim.Phase).To(Equal(infrav1.ClaimReleasing))
	f.Expect(h.Spec.Fence).NotTo(BeNil())

	t.Log("After the reset the host is free, but not available")
	f.ReportOperation(h, infrav1.OperationReset, infrav1.OperationSucceeded)
	f.reconcile(h)
	f.Expect(h.Spec.Claim).To(BeNil())
	f.ExpectCondition(h, infrav1.CleanCondition, yes, infrav1.CleanReason)
	f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.FencedReason)
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Fence = nil })
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.AvailableCondition, yes, infrav1.AvailableReason)
}

// An ElementalMachine whose Machine was deleted still determines whether disks are erased.
func TestFencedHostIsErasedWithoutItsMachine(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", claimed(infrav1.ClaimBound), func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} })
	f.Cluster("c")
	owner, _ := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.HostRef = &infrav1.HostReference{Name: h.Name, ClaimID: h.Spec.Claim.ID}
		m.Spec.Release.EraseDataDisks = infrav1.EraseZero
	})
	f.Delete(owner)
	f.reconcile(h)
	f.Expect(h.Spec.Claim.Phase).To(Equal(infrav1.ClaimReleasing))
	f.Expect(h.Spec.Claim.Erase).To(Equal(infrav1.EraseZero))
}

// A held host stays held, with and without a fence, until an administrator releases it.
func TestHeldHosts(t *testing.T) {
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"held": func(*infrav1.ElementalHost) {}, "held, fenced": func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			h := f.Host("h1", claimed(infrav1.ClaimHeld), change)
			f.reconcile(h)
			f.Expect(h.Spec.Claim.Phase).To(Equal(infrav1.ClaimHeld))
			f.ExpectCondition(h, infrav1.CleanCondition, no, infrav1.ResetHeldReason)

			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
			f.reconcile(h)
			f.ExpectCondition(h, infrav1.CleanCondition, no, infrav1.ResettingReason)
			f.ReportOperation(h, infrav1.OperationReset, infrav1.OperationSucceeded)
			f.reconcile(h)
			f.Expect(h.Spec.Claim).To(BeNil())
		})
	}
}
