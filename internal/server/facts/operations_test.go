package facts

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestRecordOfOperations(t *testing.T) {
	const id = "c1"
	bound := &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimBound}
	releasing := &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimReleasing}
	held := &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimHeld}
	op := func(kind infrav1.OperationType, id string, state infrav1.OperationState) infrav1.HostOperation {
		return infrav1.HostOperation{Type: kind, ID: id, State: state}
	}
	const b, r = infrav1.OperationBootstrap, infrav1.OperationReset
	const running, ok, failed = infrav1.OperationRunning, infrav1.OperationSucceeded, infrav1.OperationFailed
	for name, test := range map[string]struct {
		claim    *infrav1.HostClaim
		recorded []infrav1.HostOperation
		report   infrav1.HostOperation
		want     []infrav1.HostOperation
		refused  bool
	}{
		"first":                    {bound, nil, op(b, id, running), []infrav1.HostOperation{op(b, id, running)}, false},
		"end, held":                {held, []infrav1.HostOperation{op(b, id, running)}, op(b, id, ok), []infrav1.HostOperation{op(b, id, ok)}, false},
		"reset, held":              {held, nil, op(r, id, running), nil, true},
		"end":                      {bound, []infrav1.HostOperation{op(b, id, running)}, op(b, id, ok), []infrav1.HostOperation{op(b, id, ok)}, false},
		"end stays":                {bound, []infrav1.HostOperation{op(b, id, failed)}, op(b, id, ok), []infrav1.HostOperation{op(b, id, failed)}, false},
		"next claim":               {bound, []infrav1.HostOperation{op(b, "c0", ok)}, op(b, id, running), []infrav1.HostOperation{op(b, id, running)}, false},
		"late end of a bootstrap":  {releasing, nil, op(b, id, ok), []infrav1.HostOperation{op(b, id, ok)}, false},
		"reset tried again":        {releasing, []infrav1.HostOperation{op(r, id, failed)}, op(r, id, running), []infrav1.HostOperation{op(r, id, running)}, false},
		"reset done":               {releasing, []infrav1.HostOperation{op(r, id, ok)}, op(r, id, failed), []infrav1.HostOperation{op(r, id, ok)}, false},
		"reset beside a bootstrap": {releasing, []infrav1.HostOperation{op(b, id, ok)}, op(r, id, ok), []infrav1.HostOperation{op(b, id, ok), op(r, id, ok)}, false},
		"reset of a bound host":    {bound, nil, op(r, id, running), nil, true},
		"reset before a restore":   {bound, []infrav1.HostOperation{op(b, id, ok)}, op(r, id, ok), []infrav1.HostOperation{op(b, id, ok), op(r, id, ok)}, false},
		"repeat after the claim":   {nil, []infrav1.HostOperation{op(r, id, ok)}, op(r, id, ok), []infrav1.HostOperation{op(r, id, ok)}, false},
		"progress after the claim": {nil, []infrav1.HostOperation{op(b, id, running)}, op(b, id, running), nil, true},
		"an old claim's":           {bound, nil, op(b, "c0", ok), nil, true},
		"of a reserved host":       {&infrav1.HostClaim{ID: id, Phase: infrav1.ClaimReserved}, nil, op(b, id, ok), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Claim: test.claim}}
			host.Status.Operations = test.recorded
			err := RecordOperation(host, test.report, time.Now())
			g.Expect(err != nil).To(Equal(test.refused))
			if !test.refused {
				g.Expect(host.Status.Operations).To(Equal(test.want))
			}
		})
	}
}

func TestConsecutiveFailures(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	host := &infrav1.ElementalHost{}
	report := func(id string, state infrav1.OperationState) {
		t.Helper()
		host.Spec.Claim = &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimBound}
		g.Expect(RecordOperation(host, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: id, State: state}, now)).To(Succeed())
		now = now.Add(time.Minute)
	}
	count := func() int32 {
		if host.Status.Failures == nil {
			return 0
		}
		return host.Status.Failures.Consecutive
	}
	report("1", infrav1.OperationRunning)
	g.Expect(host.Status.Failures).To(BeNil())
	report("1", infrav1.OperationFailed)
	report("1", infrav1.OperationFailed)
	g.Expect(count()).To(BeEquivalentTo(1))
	report("2", infrav1.OperationUnsupported)
	report("3", infrav1.OperationFailed)
	g.Expect(count()).To(BeEquivalentTo(2))
	g.Expect(host.Status.Failures.LastOperationID).To(Equal("3"))
	g.Expect(host.Status.Failures.LastTime.Time).To(Equal(now.Add(-time.Minute)))
	host.Status.Operations = nil // as after a restore of the manager
	report("3", infrav1.OperationFailed)
	g.Expect(count()).To(BeEquivalentTo(2))
	report("4", infrav1.OperationSucceeded)
	g.Expect(host.Status.Failures).To(BeNil())
}

// A bootstrap that was aborted for a release is no failure of the host.
func TestAbortedBootstrapsAreNoFailures(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	report := func(id string, phase infrav1.ClaimPhase, state infrav1.OperationState) {
		t.Helper()
		host.Spec.Claim = &infrav1.HostClaim{ID: id, Phase: phase}
		g.Expect(RecordOperation(host, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: id, State: state}, time.Now())).To(Succeed())
		g.Expect(host.Operation(infrav1.OperationBootstrap, id).State).To(Equal(state), "the result is recorded")
	}
	for _, id := range []string{"1", "2"} {
		report(id, infrav1.ClaimBound, infrav1.OperationRunning)
		report(id, infrav1.ClaimReleasing, infrav1.OperationFailed)
		g.Expect(host.Status.Failures).To(BeNil())
	}
	report("3", infrav1.ClaimBound, infrav1.OperationFailed)
	failed := *host.Status.Failures
	report("4", infrav1.ClaimReleasing, infrav1.OperationFailed)
	g.Expect(host.Status.Failures).To(HaveValue(Equal(failed)), "an aborted bootstrap does not reset the count")
	report("5", infrav1.ClaimReleasing, infrav1.OperationSucceeded)
	g.Expect(host.Status.Failures).To(BeNil(), "a success resets the count")
}

func TestRequestedOperations(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	now := time.Now()
	reboot := infrav1.HostOperation{Type: infrav1.OperationReboot, ID: "r1", State: infrav1.OperationFailed}
	upgrade := infrav1.HostOperation{Type: infrav1.OperationUpgrade, ID: "u1", State: infrav1.OperationRunning}
	g.Expect(RecordOperation(host, reboot, now)).NotTo(Succeed())
	g.Expect(RecordOperation(host, upgrade, now)).NotTo(Succeed())
	host.Spec.Reboot = &infrav1.HostReboot{ID: "r1"}
	host.Spec.OSUpgrade = &infrav1.HostOSUpgrade{ID: "u1"}
	g.Expect(RecordOperation(host, reboot, now)).To(Succeed())
	g.Expect(RecordOperation(host, upgrade, now)).To(Succeed())
	reboot.State = infrav1.OperationSucceeded
	g.Expect(RecordOperation(host, reboot, now)).To(Succeed())
	g.Expect(host.Operation(infrav1.OperationReboot, "r1").State).To(Equal(infrav1.OperationFailed), "the first result is final")
	reboot.ID = "r0"
	g.Expect(RecordOperation(host, reboot, now)).NotTo(Succeed())
}
