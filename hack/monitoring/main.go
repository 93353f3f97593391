// Command monitoring writes what follows from other files of the repository: the PrometheusRule with
// the alerts of config/prometheus/rules.yaml, and the Grafana dashboard in config/grafana. `make
// generate` runs it in the root of the repository.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	rulesFile     = "config/prometheus/rules.yaml"
	ruleFile      = "config/prometheus/prometheus_rule.yaml"
	dashboardFile = "config/grafana/dashboard.json"
)

// ruleHeader begins the PrometheusRule. What follows is the field spec.
const ruleHeader = `# Written by make generate from rules.yaml. Do not edit it.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: elemental
  labels:
    cluster.x-k8s.io/provider: infrastructure-elemental
spec:
`

func main() {
	if err := run("."); err != nil {
		fmt.Fprintf(os.Stderr, "monitoring: %v\n", err)
		os.Exit(1)
	}
}

// run writes the files below root.
func run(root string) error {
	rules, err := os.ReadFile(filepath.Join(root, rulesFile))
	if err != nil {
		return err
	}
	rule, err := prometheusRule(string(rules))
	if err != nil {
		return fmt.Errorf("reading %s: %w", rulesFile, err)
	}
	board, err := dashboard()
	if err != nil {
		return fmt.Errorf("making the dashboard: %w", err)
	}
	for name, text := range map[string]string{ruleFile: rule, dashboardFile: board} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil { //nolint:gosec // Documents of the repository.
			return err
		}
	}
	return nil
}

// prometheusRule returns the rules as a PrometheusRule. Its spec has the format of a file of rules.
func prometheusRule(rules string) (string, error) {
	const groups = "groups:\n"
	at := strings.Index("\n"+rules, "\n"+groups)
	if at < 0 {
		return "", errors.New("there are no groups")
	}
	var b strings.Builder
	b.WriteString(ruleHeader)
	for line := range strings.Lines(rules[at:]) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		b.WriteString(line)
	}
	return b.String(), nil
}
