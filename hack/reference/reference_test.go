package main

import (
	"go/parser"
	"go/token"
	"testing"

	. "github.com/onsi/gomega"
)

func TestReplaceTables(t *testing.T) {
	g := NewWithT(t)
	const document = "a\n<!-- begin metrics -->\nold\n<!-- end metrics -->\nb\n<!-- begin fields X -->\n<!-- end fields X -->\n"
	tables := map[string]string{"metrics": "m\n", "fields X": "x\n", "fields Y": "y\n"}
	const want = "a\n<!-- begin metrics -->\nm\n<!-- end metrics -->\nb\n<!-- begin fields X -->\nx\n<!-- end fields X -->\n"
	g.Expect(replaceTables(document, tables)).To(Equal(want))
	g.Expect(replaceTables(want, tables)).To(Equal(want))

	_, err := replaceTables("<!-- begin other -->\n<!-- end other -->\n", tables)
	g.Expect(err).To(MatchError(ContainSubstring(`no table "other"`)))
	_, err = replaceTables("<!-- begin metrics -->\n<!-- end fields X -->\n", tables)
	g.Expect(err).To(MatchError(ContainSubstring("ends with the marker")))
}

func TestMetricsOf(t *testing.T) {
	g := NewWithT(t)
	parse := func(body string) ([]metric, error) {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nconst namespace = \"a\"\n"+body, 0)
		g.Expect(err).NotTo(HaveOccurred())
		return metricsOf(file)
	}
	g.Expect(parse(`var m = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: "b", Name: "c_total", Help: "Things | counted.", Buckets: nil,
	}, []string{"kind", "code"})`)).To(Equal([]metric{
		{name: "a_b_c_total", kind: "Counter", help: "Things | counted.", labels: []string{"kind", "code"}},
	}))
	_, err := parse(`func f(name string) any { return prometheus.GaugeOpts{Namespace: namespace, Subsystem: "b", Name: name, Help: "x"} }`)
	g.Expect(err).To(MatchError(ContainSubstring("Name of a metric")))
	g.Expect(metricTable([]metric{{name: "n", kind: "Counter", help: "a|b", labels: []string{"x", "y"}}})).To(
		HaveSuffix("| `n` | counter | `x`, `y` | a\\|b |\n"))
}

// The page has a table of every kind's fields but those of templates, whose
// specs are those of the kinds.
func TestTablesOfTheRepository(t *testing.T) {
	g := NewWithT(t)
	tables, err := fieldTables("../../config/crd/bases")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(tables["fields ElementalRegistration"]).To(And(
		ContainSubstring("| `spec.token.ttlSeconds` | integer, 60 to 604800, default `86400` |"),
		ContainSubstring("| `spec.readoption` | `Pending`, `Denied`, default `Denied` |"),
	))
	g.Expect(tables["fields ElementalHost"]).To(ContainSubstring("| `spec.claim.phase` | `Reserved`, `Bound`, `Held`, `Releasing` |"))
	found, err := metrics("../../internal")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(metricTable(found)).To(ContainSubstring("| `elemental_agent_api_connected_hosts` | gauge |"))
}
