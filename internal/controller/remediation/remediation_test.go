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

	t.Log("The Machine is healthy; a little later the health check deletes the remediation")
	n.health(yes)
	f.Clock.Step(time.Hour)
	n.reconcile()
	f.ExpectCondition(n.remediation, infrav1.ReadyCondition, yes, infrav1.RemediatedReason)
	f.Delete(n.remediation)
	n.reconcile()
	f.Expect(n.host.Spec.Reboot).NotTo(BeNil(), "a completed request may stay in spec")
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

	t.Log("From here on the owner of the Machine owns the condition, which must not be overwritten")
	n.setCondition(metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: no, Reason: "Deferred"})
	n.expect(infrav1.ReplacingReason, 0)
	f.Refresh(n.owner)
	f.Expect(n.owner.Status.Conditions).To(ContainElement(HaveField("Reason", "Deferred")))
	f.Delete(n.owner)
	f.Expect(f.Exists(n.owner)).To(BeFalse())
	n.expect(infrav1.MachineNotFoundReason, 0)
}

// If the host can't be rebooted, its Machine is replaced at once.
func TestRebootImpossible(t *testing.T) {
	for name, tc := range map[string]struct {
		host     func(*infrav1.ElementalHost)
		spec     infrav1.ElementalRemediationSpec
		rebooted string
	}{
		"no reboots allowed": {spec: infrav1.ElementalRemediationSpec{Reboots: new(int32(0))}},
		"not supported": {
			host:     func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities = []string{"Bootstrap", "Reset"} },
			rebooted: infrav1.RebootImpossibleReason,
		},
		"not approved": {
			host:     func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending },
			rebooted: infrav1.RebootImpossibleReason,
		},
		"reset before a restore of the management cluster": {
			host: func(h *infrav1.ElementalHost) {
				h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{
					Type: infrav1.OperationReset, ID: h.Spec.Claim.ID, State: infrav1.OperationSucceeded,
				})
			},
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
		// The host stays connected and does not reboot.
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

// The remediation waits for a reboot that another client requested, and does not
// overwrite the request.
func TestRebootRequestedByAnotherClient(t *testing.T) {
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

// Whichever write is lost, before or after it reached the API server, each reboot is
// requested once and the Machine is replaced at last.
func TestLostWrites(t *testing.T) {
	for _, moment := range []controllertest.Moment{controllertest.BeforeWrite, controllertest.AfterWrite} {
		t.Run(string(moment), func(t *testing.T) {
			f := newFixture(t)
			n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{Reboots: new(int32(2))})
			requests := map[string]bool{}
			for step := range 60 {
				f.Client.FailWrite(1+step%2, moment)
				// The work queue retries after an injected failure as after any other error.
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

// A reboot that the host has not started is withdrawn when it is no longer needed.
func TestRequestsAreWithdrawn(t *testing.T) {
	for name, end := range map[string]func(*node){
		"remediation is deleted": func(n *node) { n.f.Delete(n.remediation) },
		"Machine is deleted": func(n *node) {
			controllertest.Change(n.f.Fixture, n.owner, func(o *clusterv1.Machine) { o.Finalizers = []string{clusterv1.MachineFinalizer} })
			n.f.Delete(n.owner)
		},
		"Machine is healthy": func(n *node) { n.health(yes) },
		"site is offline":    func(n *node) { n.disconnect() },
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

func TestRequestsOfOtherClientsAreKept(t *testing.T) {
	f := newFixture(t)
	n := f.node("n", func(h *infrav1.ElementalHost) { h.Spec.Reboot = &infrav1.HostReboot{ID: "mine"} })
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	n.health(yes)
	n.reconcile()
	f.Delete(n.remediation)
	n.reconcile()
	f.Expect(n.host.Spec.Reboot).NotTo(BeNil())
}

// A withdrawn reboot does not count towards spec.reboots.
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

// A remediation reboots only a host of its Machine: not that of another, whose claim the
// ElementalMachine names, and not that of an ElementalMachine with another owner.
func TestThreat49_HostOfAnotherMachine(t *testing.T) {
	for name, change := range map[string]func(n *node, m *infrav1.ElementalMachine){
		"another claim": func(_ *node, m *infrav1.ElementalMachine) {
			m.Spec.HostRef = &infrav1.HostReference{Name: "victim", ClaimID: "claim-victim"}
		},
		"another owner": func(n *node, m *infrav1.ElementalMachine) {
			m.OwnerReferences[0].Name, m.OwnerReferences[0].UID = n.owner.Name, n.owner.UID
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			victim, n := f.node("victim"), f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
			controllertest.Change(f.Fixture, n.machine, func(m *infrav1.ElementalMachine) { change(victim, m) })
			n.reconcile()
			f.Refresh(victim.host)
			f.Refresh(n.host)
			f.Expect(victim.host.Spec.Reboot).To(BeNil())
			f.Expect(n.host.Spec.Reboot).To(BeNil())
		})
	}
}
