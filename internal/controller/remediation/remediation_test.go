package remediation_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func TestRebootThatHelps(t *testing.T) {
	f := newFixture(t)
	n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
	n.expect(infrav1.RebootRequestedReason, recovery)
	f.Expect(n.host.Spec.Reboot.ID).To(MatchRegexp(`^remediation-[0-9a-f]{8}-1$`))
	f.Expect(n.remediation.Status.Reboots).To(BeEquivalentTo(1))
	f.ExpectCondition(n.remediation, infrav1.RebootedCondition, no, infrav1.RebootRequestedReason)
	f.ExpectCondition(n.remediation, clusterv1.PausedCondition, no, clusterv1.NotPausedReason)

	n.report(infrav1.OperationRunning)
	f.Clock.Step(30 * time.Second)
	n.expect(infrav1.RebootRequestedReason, recovery-30*time.Second)

	n.report(infrav1.OperationSucceeded)
	n.expect(infrav1.RebootedReason, recovery)
	f.ExpectCondition(n.remediation, infrav1.RebootedCondition, yes, infrav1.RebootedReason)
	f.Clock.Step(recovery - time.Second)
	n.expect(infrav1.RebootedReason, time.Second)
	f.Expect(n.toBeReplaced()).To(BeFalse())
	f.Expect(f.outcomes()).To(Equal(map[string]float64{"rebooted": 1}))
	f.Expect(f.Events()).To(HaveExactElements(ContainSubstring("RebootRequested"), ContainSubstring("Normal Rebooted")))

	t.Log("The health check is content; a little later it deletes the remediation")
	n.health(yes)
	f.Clock.Step(time.Hour)
	n.reconcile()
	f.ExpectCondition(n.remediation, infrav1.ReadyCondition, yes, infrav1.RemediatedReason)
	f.Delete(n.remediation)
	n.reconcile()
	f.Expect(n.host.Spec.Reboot).NotTo(BeNil(), "a request that is done with may stay")
	f.Expect(n.toBeReplaced()).To(BeFalse())
}

func TestRebootsThatDoNotHelp(t *testing.T) {
	f := newFixture(t)
	n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{Reboots: new(int32(2))})
	n.expect(infrav1.RebootRequestedReason, recovery)
	first := n.host.Spec.Reboot.ID
	n.report(infrav1.OperationSucceeded)
	n.expect(infrav1.RebootedReason, recovery)
	f.Clock.Step(recovery)

	n.expect(infrav1.RebootRequestedReason, recovery)
	f.Expect(n.host.Spec.Reboot.ID).NotTo(Equal(first))
	f.Expect(n.remediation.Status.Reboots).To(BeEquivalentTo(2))
	n.report(infrav1.OperationSucceeded)
	n.expect(infrav1.RebootedReason, recovery)
	f.Clock.Step(recovery - time.Second)
	n.expect(infrav1.RebootedReason, time.Second)
	f.Expect(n.toBeReplaced()).To(BeFalse())

	f.Clock.Step(time.Second)
	n.expect(infrav1.ReplacingReason, 0)
	f.Expect(n.toBeReplaced()).To(BeTrue())
	f.ExpectCondition(n.remediation, infrav1.RebootedCondition, yes, infrav1.RebootedReason)
	f.Expect(f.outcomes()).To(Equal(map[string]float64{"rebooted": 2, "replaced": 1}))

	t.Log("From here on it is the owner's; what it says is not overwritten")
	n.setCondition(metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: no, Reason: "Deferred"})
	n.expect(infrav1.ReplacingReason, 0)
	f.Refresh(n.owner)
	f.Expect(n.owner.Status.Conditions).To(ContainElement(HaveField("Reason", "Deferred")))
	f.Delete(n.owner)
	f.Expect(f.Exists(n.owner)).To(BeFalse())
	n.expect(infrav1.MachineNotFoundReason, 0)
}

// Where a reboot can't be had the Machine is replaced without.
func TestNoReboot(t *testing.T) {
	for name, tc := range map[string]struct {
		host     func(*infrav1.ElementalHost)
		spec     infrav1.ElementalRemediationSpec
		rebooted string
	}{
		"not wanted": {spec: infrav1.ElementalRemediationSpec{Reboots: new(int32(0))}},
		"not supported": {
			host:     func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities = []string{"Bootstrap", "Reset"} },
			rebooted: infrav1.RebootImpossibleReason,
		},
		"not approved": {
			host:     func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending },
			rebooted: infrav1.RebootImpossibleReason,
		},
		"not bootstrapped": {
			host:     func(h *infrav1.ElementalHost) { h.Status.Operations[0].State = infrav1.OperationFailed },
			rebooted: infrav1.RebootImpossibleReason,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if tc.host == nil {
				tc.host = func(*infrav1.ElementalHost) {}
			}
			n := f.node("n", tc.host).unhealthy(tc.spec)
			n.expect(infrav1.ReplacingReason, 0)
			f.Expect(n.toBeReplaced()).To(BeTrue())
			f.Expect(n.host.Spec.Reboot).To(BeNil())
			if tc.rebooted != "" {
				f.ExpectCondition(n.remediation, infrav1.RebootedCondition, no, tc.rebooted)
			}
		})
	}
}

func TestRebootThatFails(t *testing.T) {
	for state, reason := range map[infrav1.OperationState]string{
		infrav1.OperationFailed:      infrav1.RebootFailedReason,
		infrav1.OperationUnsupported: infrav1.RebootImpossibleReason,
		// A host that stays connected, and does not reboot.
		infrav1.OperationRunning: infrav1.RebootFailedReason,
	} {
		t.Run(string(state), func(t *testing.T) {
			f := newFixture(t)
			n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{Reboots: new(int32(5))})
			n.expect(infrav1.RebootRequestedReason, recovery)
			n.report(state)
			if state == infrav1.OperationRunning {
				f.Clock.Step(recovery)
			}
			n.expect(infrav1.ReplacingReason, 0)
			f.ExpectCondition(n.remediation, infrav1.RebootedCondition, no, reason)
			f.Expect(n.toBeReplaced()).To(BeTrue())
			f.Expect(f.outcomes()).To(HaveKeyWithValue("reboot_failed", 1.0))
		})
	}
}

// A request of somebody else's is waited for, and not overwritten.
func TestRebootForSomebodyElse(t *testing.T) {
	f := newFixture(t)
	n := f.node("n", func(h *infrav1.ElementalHost) { h.Spec.Reboot = &infrav1.HostReboot{ID: "mine"} })
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	n.expect(infrav1.RebootRequestedReason, 0)
	f.Expect(n.host.Spec.Reboot.ID).To(Equal("mine"))
	f.Expect(n.remediation.Status.Reboots).To(BeZero())
	n.report(infrav1.OperationSucceeded)
	n.expect(infrav1.RebootRequestedReason, recovery)
	f.Expect(n.host.Spec.Reboot.ID).NotTo(Equal("mine"))
}

// Whatever write is lost, before or after it happens, a host is asked once for
// each reboot, and a Machine is replaced in the end.
func TestWritesThatAreLost(t *testing.T) {
	for _, moment := range []controllertest.Moment{controllertest.BeforeWrite, controllertest.AfterWrite} {
		t.Run(string(moment), func(t *testing.T) {
			f := newFixture(t)
			n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{Reboots: new(int32(2))})
			requests := map[string]bool{}
			for step := range 60 {
				f.Client.FailWrite(1+step%2, moment)
				// An injected failure is an error like any other; it is tried again.
				_, err := f.reconciler.Reconcile(f.Ctx, request(n.remediation))
				if err != nil {
					f.Expect(err).To(MatchError(controllertest.ErrInjected))
				}
				f.Refresh(n.host)
				f.Refresh(n.remediation)
				if reboot := n.host.Spec.Reboot; reboot != nil && !requests[reboot.ID] {
					requests[reboot.ID] = true
					n.report(infrav1.OperationSucceeded)
				}
				f.Clock.Step(20 * time.Second)
			}
			f.Expect(requests).To(HaveLen(2))
			f.Expect(n.toBeReplaced()).To(BeTrue())
			f.Client.Forget()
			n.expect(infrav1.ReplacingReason, 0)
		})
	}
}

// A request that the host took no notice of does not outlive its reason.
func TestRequestsAreTakenBack(t *testing.T) {
	for name, end := range map[string]func(*node){
		"remediation is deleted": func(n *node) { n.f.Delete(n.remediation) },
		"Machine is deleted": func(n *node) {
			controllertest.Change(n.f.Fixture, n.owner, func(o *clusterv1.Machine) { o.Finalizers = []string{clusterv1.MachineFinalizer} })
			n.f.Delete(n.owner)
		},
		"Machine is healthy": func(n *node) { n.health(yes) },
		"site is dark":       func(n *node) { n.disconnect() },
		"no report in time":  func(n *node) { n.f.Clock.Step(recovery) },
		"maintenance": func(n *node) {
			controllertest.Change(n.f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
			n.expect(infrav1.RebootRequestedReason, recovery)
			end(n)
			n.reconcile()
			f.Expect(n.host.Spec.Reboot).To(BeNil())
		})
	}
}

func TestRequestsOfOthersAreLeft(t *testing.T) {
	f := newFixture(t)
	n := f.node("n", func(h *infrav1.ElementalHost) { h.Spec.Reboot = &infrav1.HostReboot{ID: "mine"} })
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	n.health(yes)
	n.reconcile()
	f.Delete(n.remediation)
	n.reconcile()
	f.Expect(n.host.Spec.Reboot).NotTo(BeNil())
}

// A reboot that did not come about is none of those that the spec allows.
func TestWithdrawnRequestIsMadeAgain(t *testing.T) {
	f := newFixture(t)
	n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
	n.expect(infrav1.RebootRequestedReason, recovery)
	id := n.host.Spec.Reboot.ID
	n.disconnect()
	n.expect(infrav1.SiteDarkReason, 0)
	f.Expect(n.host.Spec.Reboot).To(BeNil())
	c := f.ExpectCondition(n.remediation, infrav1.RebootedCondition, no, infrav1.RebootRequestedReason)
	f.Expect(c.Message).To(ContainSubstring("withdrawn"))
	n.connect()
	n.expect(infrav1.RecoveringReason, recovery)
	f.Clock.Step(recovery)
	n.expect(infrav1.RebootRequestedReason, recovery)
	f.Expect(n.host.Spec.Reboot.ID).To(Equal(id))
	f.Expect(n.remediation.Status.Reboots).To(BeEquivalentTo(1))
	n.report(infrav1.OperationSucceeded)
	n.expect(infrav1.RebootedReason, recovery)
	f.Expect(n.toBeReplaced()).To(BeFalse())
}
