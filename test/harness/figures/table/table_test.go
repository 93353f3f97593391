package table

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func section() Section {
	return Section{
		Scenario: "memory", Title: "Memory of a connected host", Command: "make bench-memory",
		Machine: "2 cores of Some CPU, 23 GiB, Linux 6.18", Commit: "abc1234", Date: time.Date(2026, 11, 21, 23, 0, 0, 0, time.FixedZone("", -2*3600)),
		Rows: []Row{
			{Figure: "Memory a host", Value: KiB(70 << 10), Bare: KiB(60 << 10), Ratio: Ratio(70, 60), Target: "1.3x"},
			{Figure: "Memory of the manager", Value: MiB(1600 << 20), Target: "1,536 MiB", Missed: true},
			{Figure: "a | b\nc", Value: "1"},
		},
		Notes: []string{"One note.", "Another."},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	want, err := os.ReadFile(file)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(got).To(Equal(string(want)), file)
}

func TestString(t *testing.T) { golden(t, "section.md", section().String()) }

func TestReplace(t *testing.T) {
	g := NewWithT(t)
	document := "# Figures\n\n<!-- begin enrol -->\nothers\n<!-- end enrol -->\n\n<!-- begin memory -->\nold\n<!-- end memory -->\n\nEnd.\n"
	once, err := section().Replace(document)
	g.Expect(err).NotTo(HaveOccurred())
	golden(t, "document.md", once)
	twice, err := section().Replace(once)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(twice).To(Equal(once))

	for _, spoil := range []func(string) string{
		func(d string) string { return strings.Replace(d, "<!-- begin memory -->\n", "", 1) },
		func(d string) string { return strings.Replace(d, "<!-- end memory -->\n", "", 1) },
		func(d string) string { return d + document },
	} {
		_, err := section().Replace(spoil(document))
		g.Expect(err).To(MatchError(ContainSubstring("writing the figures of memory")))
	}
}

func TestFormat(t *testing.T) {
	g := NewWithT(t)
	for got, want := range map[string]string{
		Duration(1234 * time.Microsecond): "1.23 ms", Duration(90 * time.Second): "90.0 s", Duration(15 * time.Microsecond): "15.0 µs",
		Duration(0): "0 µs", Duration(999 * time.Second): "999 s", KiB(1 << 20): "1,024 KiB", MiB(1 << 19): "0.50 MiB",
		Count(999): "999", Count(10000): "10,000", Count(1234567): "1,234,567", Count(-10000): "-10,000", Count(0): "0",
		Ratio(3, 2): "1.50x", Ratio(1, 0): "", Percent(0.0123): "1.23 %", Percent(0.0001): "0.010 %", Number(0): "0", Number(12345.6): "12,346",
	} {
		g.Expect(got).To(Equal(want))
	}
}
