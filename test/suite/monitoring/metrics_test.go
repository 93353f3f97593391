package monitoring_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// metricsIn returns the names of metrics in an expression, as they are registered.
func metricsIn(expr string) []string {
	var names []string
	for _, name := range regexp.MustCompile(`\b(?:elemental|controller_runtime|process)_[a-z_]+`).FindAllString(expr, -1) {
		names = append(names, strings.TrimSuffix(name, "_bucket"))
	}
	return names
}

// selector is a metric with labels in braces.
var selector = regexp.MustCompile(`\b([a-z_]+)\{([^}]*)\}`)

// matcher is a label with its values in such braces.
var matcher = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)

// grouping is a list of labels in parentheses.
var grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)

// panel is a panel of the dashboard.
type panel struct {
	Type, Title string
	// GridPos is its place in a grid of 24 columns.
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct{ Defaults struct{ Unit string } }
}

func (p *panel) unit() string { return p.FieldConfig.Defaults.Unit }

// row is a row of the dashboard. Its panels begin at line top of the grid.
type row struct {
	top    int
	panels []panel
}

// rows returns the rows of the dashboard.
func rows(t *testing.T) []row {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, "config/grafana/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []row
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			all = append(all, row{top: p.GridPos.Y + p.GridPos.H})
			continue
		}
		all[len(all)-1].panels = append(all[len(all)-1].panels, p)
	}
	return all
}

// interval replaces the variable of Grafana in an expression.
func interval(expr string) string { return strings.ReplaceAll(expr, "$__rate_interval", "1m") }

// queries returns the expressions of the dashboard by the title of their panel.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range rows(t) {
		for _, panel := range row.panels {
			for _, target := range panel.Targets {
				all[panel.Title] = append(all[panel.Title], target.Expr)
			}
		}
	}
	if len(all) < 25 {
		t.Fatalf("only %d panels were found", len(all))
	}
	return all
}

// expressions returns all expressions of alerts and dashboard by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, a := range alerts(t) {
		all[a.Alert] = a.Expr
	}
	for title, exprs := range queries(t) {
		all[title] = strings.Join(exprs, "\n")
	}
	return all
}

// documented returns the labels of each metric in the reference, which is generated from the code.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	metrics := map[string][]string{
		// Of libraries.
		"controller_runtime_reconcile_errors_total": {"controller"},
		"process_resident_memory_bytes":             nil,
	}
	_, table, _ := strings.Cut(read(t, "docs/reference.md"), "<!-- begin metrics -->\n")
	table, _, _ = strings.Cut(table, "<!-- end metrics -->")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z]+ \\| (.*?) \\|").FindAllStringSubmatch(table, -1) {
		metrics[row[1]] = regexp.MustCompile("[a-z_]+").FindAllString(row[2], -1)
	}
	return metrics
}

// Alerts and dashboard name metrics and labels that the manager has.
func TestMetricsAndLabelsExist(t *testing.T) {
	g, metrics := NewWithT(t), documented(t)
	for where, expr := range expressions(t) {
		labels := []string{"le", "instance"}
		for _, name := range metricsIn(expr) {
			g.Expect(metrics).To(HaveKey(name), where)
			labels = append(labels, metrics[name]...)
		}
		for _, group := range grouping.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(group[1], ", ") {
				g.Expect(labels).To(ContainElement(label), "%s groups by it", where)
			}
		}
		for _, s := range selector.FindAllStringSubmatch(expr, -1) {
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				g.Expect(metrics[s[1]]).To(ContainElement(m[1]), "%s selects %s by it", where, s[1])
			}
		}
	}
}

// A value that an expression selects exists: a reason of the API, or a word of the metric's description.
func TestSelectedValuesExist(t *testing.T) {
	g := NewWithT(t)
	api := regexp.MustCompile(`= "([A-Z][A-Za-z]+)"`).FindAllStringSubmatch(read(t, "api/v1beta2/conditions.go"), -1)
	var reasons []string
	for _, found := range api {
		reasons = append(reasons, found[1])
	}
	reference := read(t, "docs/reference.md")
	for where, expr := range expressions(t) {
		for _, s := range selector.FindAllStringSubmatch(expr, -1) {
			row := regexp.MustCompile("(?m)^\\| `" + s[1] + "` .*").FindString(reference)
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				for value := range strings.SplitSeq(m[2], "|") {
					described := regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`).MatchString(row)
					if m[1] != "controller" && value != "none" && !described && !slices.Contains(reasons, value) {
						t.Errorf("%s selects %s by %s %q, which does not exist", where, s[1], m[1], value)
					}
				}
			}
		}
	}
	g.Expect(len(reasons)).To(BeNumerically(">", 100))
}
