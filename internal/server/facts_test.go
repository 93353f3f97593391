package server

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestClockSkew(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		ahead          time.Duration
		recorded, want int64
	}{
		"none":                    {0, 0, 0},
		"less than a minute":      {59 * time.Second, 0, 0},
		"a minute":                {61 * time.Second, 0, 60},
		"behind":                  {-150 * time.Second, 0, -120},
		"seconds more":            {175 * time.Second, 120, 120},
		"seconds less":            {100 * time.Second, 120, 120},
		"a minute more":           {181 * time.Second, 120, 180},
		"right again":             {5 * time.Second, 120, 0},
		"years ahead":             {10 * 365 * 24 * time.Hour, 0, 10 * 365 * 24 * 3600},
		"the beginning of epochs": {-now.Sub(time.Unix(0, 0)), 0, -now.Unix()},
	} {
		t.Run(name, func(t *testing.T) {
			host := now.Add(test.ahead)
			NewWithT(t).Expect(skewOf(&host, test.recorded, now)).To(Equal(test.want))
		})
	}
	NewWithT(t).Expect(skewOf(nil, 120, now)).To(BeZero())
	NewWithT(t).Expect(skewOf(&time.Time{}, 0, now)).To(BeNumerically("<", 0))
}

func TestHelloKeepsTheUpdate(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	host := &infrav1.ElementalHost{}
	setFacts(host, &protocol.Report{AgentUpdate: &protocol.AgentUpdate{Version: "v2", State: protocol.StateFailed, Message: "no room\x00"}}, now)
	want := &infrav1.AgentUpdate{Version: "v2", State: infrav1.OperationFailed, Message: "no room"}
	g.Expect(host.Status.Agent.Update).To(Equal(want))
	setFacts(host, &protocol.Report{Hello: &protocol.Hello{AgentVersion: "v1", TrustDigest: "0123456789abcdef"}}, now)
	g.Expect(host.Status.Agent.Update).To(Equal(want))
	g.Expect(host.Status.Agent.Version).To(Equal("v1"))
	g.Expect(host.Status.Agent.TrustDigest).To(Equal("0123456789abcdef"))
	for _, odd := range []protocol.AgentUpdate{{}, {Version: "v3"}, {Version: "v3", State: "Odd"}, {State: protocol.StateFailed}} {
		setFacts(host, &protocol.Report{AgentUpdate: &odd}, now)
	}
	g.Expect(host.Status.Agent.Update).To(Equal(want))
	for _, odd := range []string{"", "0123", "0123456789abcdeF", "0123456789abcdefg", "../../etc/passwd"} {
		setFacts(host, &protocol.Report{Hello: &protocol.Hello{TrustDigest: odd}}, now)
		g.Expect(host.Status.Agent.TrustDigest).To(BeEmpty())
	}
}

func TestErasedDisksAreBounded(t *testing.T) {
	g := NewWithT(t)
	disks := []protocol.ErasedDisk{{Name: "", Result: protocol.Erased}, {Name: "sdx", Result: "Odd"}, {Name: "sda", Result: protocol.ErasureKept, SizeBytes: -1}}
	for range 100 {
		disks = append(disks, protocol.ErasedDisk{Name: "sdb", Result: protocol.Erased})
	}
	got := erasedOf(disks)
	g.Expect(got).To(HaveLen(protocol.MaxDevices))
	g.Expect(got[0]).To(Equal(infrav1.ErasedDisk{Name: "sda", Result: infrav1.ErasureKept}))
}

func TestFailuresInARow(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	host := &infrav1.ElementalHost{}
	report := func(id string, state infrav1.OperationState) {
		t.Helper()
		host.Spec.Claim = &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimBound}
		g.Expect(record(host, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: id, State: state}, now)).To(Succeed())
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
	host.Status.Operations = nil // a manager that was restored hears it again
	report("3", infrav1.OperationFailed)
	g.Expect(count()).To(BeEquivalentTo(2))
	report("4", infrav1.OperationSucceeded)
	g.Expect(host.Status.Failures).To(BeNil())
}

// Deleting Machines while their hosts bootstrap says nothing against the hosts.
func TestReleasesAreNoFailures(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	report := func(id string, phase infrav1.ClaimPhase, state infrav1.OperationState) {
		t.Helper()
		host.Spec.Claim = &infrav1.HostClaim{ID: id, Phase: phase}
		g.Expect(record(host, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: id, State: state}, time.Now())).To(Succeed())
		g.Expect(host.Operation(infrav1.OperationBootstrap, id).State).To(Equal(state), "what became of it is told")
	}
	for _, id := range []string{"1", "2"} {
		report(id, infrav1.ClaimBound, infrav1.OperationRunning)
		report(id, infrav1.ClaimReleasing, infrav1.OperationFailed)
		g.Expect(host.Status.Failures).To(BeNil())
	}
	report("3", infrav1.ClaimBound, infrav1.OperationFailed)
	failed := *host.Status.Failures
	report("4", infrav1.ClaimReleasing, infrav1.OperationFailed)
	g.Expect(host.Status.Failures).To(HaveValue(Equal(failed)), "and nothing for them")
	report("5", infrav1.ClaimReleasing, infrav1.OperationSucceeded)
	g.Expect(host.Status.Failures).To(BeNil(), "one that ended well did")
}

func TestRequestedOperations(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	now := time.Now()
	reboot := infrav1.HostOperation{Type: infrav1.OperationReboot, ID: "r1", State: infrav1.OperationFailed}
	upgrade := infrav1.HostOperation{Type: infrav1.OperationUpgrade, ID: "u1", State: infrav1.OperationRunning}
	g.Expect(record(host, reboot, now)).NotTo(Succeed())
	g.Expect(record(host, upgrade, now)).NotTo(Succeed())
	host.Spec.Reboot = &infrav1.HostReboot{ID: "r1"}
	host.Spec.OSUpgrade = &infrav1.HostOSUpgrade{ID: "u1"}
	g.Expect(record(host, reboot, now)).To(Succeed())
	g.Expect(record(host, upgrade, now)).To(Succeed())
	reboot.State = infrav1.OperationSucceeded
	g.Expect(record(host, reboot, now)).To(Succeed())
	g.Expect(host.Operation(infrav1.OperationReboot, "r1").State).To(Equal(infrav1.OperationFailed), "the first end counts")
	reboot.ID = "r0"
	g.Expect(record(host, reboot, now)).NotTo(Succeed())
}

func TestMeaninglessSerials(t *testing.T) {
	g := NewWithT(t)
	for _, serial := range []string{"", "None", "NONE", "To be filled by O.E.M.", "Default string", "0123456789", "System Serial Number", "00000000", "XXXX", "0-0-0"} {
		g.Expect(meaningless(serial)).To(BeTrue(), serial)
	}
	for _, serial := range []string{"SN 1", "CZC1234567", "0000001", "VMware-42 3a"} {
		g.Expect(meaningless(serial)).To(BeFalse(), serial)
	}
}
