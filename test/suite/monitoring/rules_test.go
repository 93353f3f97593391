package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

const (
	root      = "../../.."
	rulesFile = "config/prometheus/rules.yaml"
)

// alert is an alert of the file of rules.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// groups is the format of files of rules.
type groups struct {
	Groups []struct {
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

func (g groups) alerts() []alert {
	var all []alert
	for _, group := range g.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alerts returns all alerts.
func alerts(t *testing.T) []alert {
	t.Helper()
	var rules groups
	if err := yaml.Unmarshal([]byte(read(t, rulesFile)), &rules); err != nil {
		t.Fatal(err)
	}
	if len(rules.alerts()) < 20 {
		t.Fatalf("only %d alerts were found", len(rules.alerts()))
	}
	return rules.alerts()
}

// tool builds a program of test/tools and returns its file.
func tool(t *testing.T, name string) string {
	t.Helper()
	tools, err := toolset.Select(name)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := toolset.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := toolset.Builder{Modules: filepath.Join(root, "test", "tools"), Cache: cache, Progress: os.Stderr}.Folder(t.Context(), tools...)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, name)
}

// promtool runs promtool in the folder of the tests of rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "promtool"), args...)
	cmd.Dir = "testdata"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Each alert fires when it should and not before, and none fires in a quiet fleet.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join("..", root, rulesFile))
	promtool(t, "test", "rules", "alerts.yaml", "days.yaml")

	g := NewWithT(t)
	days := read(t, "test/suite/monitoring/testdata/days.yaml")
	all, quiet, found := strings.Cut(read(t, "test/suite/monitoring/testdata/alerts.yaml")+days, "  - name: a quiet fleet\n")
	g.Expect(found).To(BeTrue())
	for _, a := range alerts(t) {
		g.Expect(all).To(ContainSubstring("  - name: "+a.Alert+" fires\n"), "no test shows that it fires")
		g.Expect(strings.Count(quiet, "{alertname: "+a.Alert+", ")).To(Equal(3), "%s is not tested in a quiet fleet", a.Alert)
		for _, metric := range metricsIn(a.Expr) {
			g.Expect(quiet).To(ContainSubstring(metric), "the quiet fleet of %s lacks the metric", a.Alert)
		}
	}
}

// Each alert has a runbook, and each runbook an alert.
func TestRunbooks(t *testing.T) {
	g := NewWithT(t)
	_, section, found := strings.Cut(read(t, "docs/monitoring.md"), "\n## Runbooks\n")
	g.Expect(found).To(BeTrue())
	runbooks := map[string]string{}
	for _, text := range strings.Split(section, "\n### ")[1:] {
		name, body, _ := strings.Cut(text, "\n")
		runbooks[name] = body
	}
	for _, a := range alerts(t) {
		g.Expect(runbooks).To(HaveKey(a.Alert))
		for _, part := range []string{"*Meaning.* ", "*Look at* ", "*Do.* "} {
			g.Expect(runbooks[a.Alert]).To(ContainSubstring(part), "the runbook of %s", a.Alert)
		}
		g.Expect(a.Annotations["runbook_url"]).To(HaveSuffix("/docs/monitoring.md#" + strings.ToLower(a.Alert)))
		g.Expect(a.Annotations["summary"]).NotTo(BeEmpty())
		g.Expect(a.Labels["severity"]).To(BeElementOf("critical", "warning", "info"))
		delete(runbooks, a.Alert)
	}
	g.Expect(runbooks).To(BeEmpty(), "runbooks without an alert")
}

// The PrometheusRule has the rules of the file.
func TestPrometheusRule(t *testing.T) {
	g := NewWithT(t)
	var rule struct {
		APIVersion, Kind string
		Spec             map[string]any
	}
	g.Expect(yaml.Unmarshal([]byte(read(t, "config/prometheus/prometheus_rule.yaml")), &rule)).To(Succeed())
	g.Expect(rule.APIVersion + " " + rule.Kind).To(Equal("monitoring.coreos.com/v1 PrometheusRule"))
	var rules map[string]any
	g.Expect(yaml.Unmarshal([]byte(read(t, rulesFile)), &rules)).To(Succeed())
	g.Expect(rule.Spec).To(Equal(rules))
}
