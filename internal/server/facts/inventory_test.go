package facts

import (
	"strings"
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
	SetReported(host, &protocol.Report{AgentUpdate: &protocol.AgentUpdate{Version: "v2", State: protocol.StateFailed, Message: "no room\x00"}}, now)
	want := &infrav1.AgentUpdate{Version: "v2", State: infrav1.OperationFailed, Message: "no room"}
	g.Expect(host.Status.Agent.Update).To(Equal(want))
	SetReported(host, &protocol.Report{Hello: &protocol.Hello{AgentVersion: "v1", TrustDigest: "0123456789abcdef"}}, now)
	g.Expect(host.Status.Agent.Update).To(Equal(want))
	g.Expect(host.Status.Agent.Version).To(Equal("v1"))
	g.Expect(host.Status.Agent.TrustDigest).To(Equal("0123456789abcdef"))
	for _, odd := range []protocol.AgentUpdate{{}, {Version: "v3"}, {Version: "v3", State: "Odd"}, {State: protocol.StateFailed}} {
		SetReported(host, &protocol.Report{AgentUpdate: &odd}, now)
	}
	g.Expect(host.Status.Agent.Update).To(Equal(want))
	for _, odd := range []string{"", "0123", "0123456789abcdeF", "0123456789abcdefg", "../../etc/passwd"} {
		SetReported(host, &protocol.Report{Hello: &protocol.Hello{TrustDigest: odd}}, now)
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

func TestMeaninglessSerials(t *testing.T) {
	g := NewWithT(t)
	for _, serial := range []string{"", "None", "NONE", "To be filled by O.E.M.", "Default string", "0123456789", "System Serial Number", "00000000", "XXXX", "0-0-0"} {
		g.Expect(MeaninglessSerial(serial)).To(BeTrue(), serial)
	}
	for _, serial := range []string{"SN 1", "CZC1234567", "0000001", "VMware-42 3a"} {
		g.Expect(MeaninglessSerial(serial)).To(BeFalse(), serial)
	}
}

func TestBoundedText(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"plain":                   "plain",
		"  spaced\n":              "spaced",
		"a\x00\x1b[mb\tc\nd":      "a[mb\tc\nd",
		"bad\xff":                 "bad\uFFFD",
		strings.Repeat("x", 20):   strings.Repeat("x", 10),
		"aaaaaaaaa" + "é":         "aaaaaaaaa",
		"ééééé" + "é":             "ééééé",
		"aaaaaaaa  " + "and more": "aaaaaaaa",
		"<<<<":                    "<",
		"a\"b\\c\n":               "a\"b\\c",
		"a\"bc\nd":                "a\"bc\nd",
		"\"\"\"\"\"\"":            `"""""`,
	} {
		NewWithT(t).Expect(bounded(in, 10)).To(Equal(want), "%q", in)
	}
}

func TestSuccessor(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	report := func(s protocol.SuccessorReport) *infrav1.HostSuccessor {
		SetReported(host, &protocol.Report{Successor: &s}, time.Now())
		return host.Status.Successor
	}
	g.Expect(report(protocol.SuccessorReport{Digest: "0123456789abcdef", Message: "refused\x00"})).To(Equal(
		&infrav1.HostSuccessor{Digest: "0123456789abcdef", Reached: new(false), Message: "refused"}))
	g.Expect(report(protocol.SuccessorReport{Digest: "0123456789abcdef", Reached: true}).Reached).To(Equal(new(true)))
	SetReported(host, &protocol.Report{}, time.Now())
	g.Expect(host.Status.Successor).NotTo(BeNil(), "a report without it says nothing of it")
	g.Expect(report(protocol.SuccessorReport{})).To(BeNil())
	g.Expect(report(protocol.SuccessorReport{Digest: "../../etc/passwd", Reached: true})).To(BeNil())
}
