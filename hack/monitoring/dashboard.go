package main

import (
	"encoding/json"
	"fmt"
)

// width is the number of columns of a dashboard.
const width = 24

// query is a query of a panel. legend is Grafana's format of its series; blank for one series.
type query struct{ expr, legend string }

// panel is a panel of the dashboard. kind is Grafana's type, unit its unit of the values.
type panel struct {
	title, description, kind, unit string
	width                          int
	queries                        []query
}

// row is a heading of the dashboard with the panels below it.
type row struct {
	title  string
	panels []panel
}

const (
	stat   = "stat"
	series = "timeseries"
)

// one returns the only query of a panel.
func one(expr, legend string) []query { return []query{{expr, legend}} }

func rows() []row {
	return []row{
		{"Fleet", []panel{
			{"Hosts", "All ElementalHosts.", stat, "", 4, one(`sum(elemental_fleet_hosts)`, "")},
			{"Connected", "Hosts that wait for their plan.", stat, "", 4, one(`sum(elemental_agent_api_connected_hosts)`, "")},
			{"Available", "Hosts that machines can claim now.", stat, "", 4, one(`sum(elemental_fleet_hosts{state="Available"})`, "")},
			{"Disconnected", "Hosts without maintenance that have not been heard of.", stat, "", 4, one(`sum(elemental_fleet_failure_domain_hosts{class="disconnected"})`, "")},
			{"Waiting machines", "Machines that find no host.", stat, "", 4, one(`sum(elemental_fleet_machines{state=~"NoSuitableHost|NoHostInFailureDomain"}) or vector(0)`, "")},
			{"Stuck upgrades", "Machines whose upgrade failed.", stat, "", 4, one(`sum(elemental_upgrade_machines{reason=~"UpgradeFailed|RolledBack|NotPossible"})`, "")},
			{"Hosts by state", "The reason of the condition Ready.", series, "", 12, one(`sum by (state) (elemental_fleet_hosts)`, "{{state}}")},
			{"Machines by state", "The reason of the condition Ready.", series, "", 12, one(`sum by (state) (elemental_fleet_machines)`, "{{state}}")},
			{"Hosts by failure domain", "", series, "", 12, one(`sum by (failure_domain) (elemental_fleet_failure_domain_hosts)`, "{{failure_domain}}")},
			{"Disconnected hosts by failure domain", "", series, "", 12, one(`sum by (failure_domain) (elemental_fleet_failure_domain_hosts{class="disconnected"})`, "{{failure_domain}}")},
			{"Hosts by registration", "", series, "", 12, one(`sum by (registration) (elemental_fleet_registration_hosts)`, "{{registration}}")},
			{"Why hosts are not available", "The reason of the condition Available.", series, "", 12, one(`sum by (reason) (elemental_fleet_unavailable_hosts)`, "{{reason}}")},
		}},
		{"Lives of machines and hosts", []panel{
			{"Placements", "Outcomes of the search for a host.", series, "", 12, one(`sum by (outcome) (increase(elemental_machine_placements_total[$__rate_interval]))`, "{{outcome}}")},
			{"Time of machines in a state", "95th percentile of states that ended within an hour.", series, "s", 12, one(`histogram_quantile(0.95, sum by (state, le) (rate(elemental_machine_state_duration_seconds_bucket[1h])))`, "{{state}}")},
			{"Time of hosts in a state", "95th percentile of states that ended within an hour.", series, "s", 12, one(`histogram_quantile(0.95, sum by (state, le) (rate(elemental_host_state_duration_seconds_bucket[1h])))`, "{{state}}")},
			{"Operations", "Operations that ended.", series, "", 12, one(`sum by (type, result) (increase(elemental_host_operations_total[$__rate_interval])) > 0`, "{{type}} {{result}}")},
			{"Time of operations", "95th percentile within an hour, by the hosts' clocks.", series, "s", 12, one(`histogram_quantile(0.95, sum by (type, le) (rate(elemental_host_operation_duration_seconds_bucket[1h])))`, "{{type}}")},
			{"Failed steps", "Steps at which operations failed within an hour.", series, "", 12, one(`sum by (type, step) (increase(elemental_host_operation_failures_total[1h]))`, "{{type}} {{step}}")},
			{"Upgrades of Kubernetes", "The reason of the condition KubernetesUpToDate.", series, "", 12, one(`sum by (reason) (elemental_upgrade_machines) > 0`, "{{reason}}")},
			{"Moves of endpoints", "", series, "", 12, one(`sum by (cause) (increase(elemental_endpoint_moves_total[1h]))`, "{{cause}}")},
		}},
		{"Agents and trust", []panel{
			{"Versions of agents", "", series, "", 12, one(`sum by (version) (elemental_fleet_agents)`, "{{version}}")},
			{"Updates of agents", "Updates that ended within an hour.", series, "", 12, one(`sum by (result) (increase(elemental_host_agent_updates_total[1h]))`, "{{result}}")},
			{"Enrolments", "", series, "ops", 12, one(`sum by (result) (rate(elemental_agent_api_enrolments_total[$__rate_interval]))`, "{{result}}")},
			{"Time until expiry", "Of the CA of the agent API, the certificates of the gateway, the webhooks and clusters, and registration tokens.", series, "s", 12, []query{
				{`min(elemental_agent_api_ca_not_after_seconds > 0) - time()`, "CA"},
				{`min(elemental_gateway_certificate_not_after_seconds > 0) - time()`, "gateway"},
				{`min(elemental_webhook_certificate_not_after_seconds > 0) - time()`, "webhooks"},
				{`min by (cluster) (elemental_fleet_certificate_not_after_seconds) - time()`, "control plane of {{cluster}}"},
				{`min by (cluster) (elemental_fleet_kubeconfig_not_after_seconds) - time()`, "kubeconfig of {{cluster}}"},
				{`elemental_fleet_registration_token_not_after_seconds - time()`, "token of {{registration}}"},
			}},
		}},
		{"Manager", []panel{
			{"Requests of agents", "By route and class of the answer's status.", series, "reqps", 12, one(`sum by (route, code) (rate(elemental_agent_api_requests_total[$__rate_interval]))`, "{{route}} {{code}}")},
			{"Time until a report is durable", "", series, "s", 12, []query{
				{`histogram_quantile(0.5, sum by (le) (rate(elemental_agent_api_report_duration_seconds_bucket[$__rate_interval])))`, "median"},
				{`histogram_quantile(0.99, sum by (le) (rate(elemental_agent_api_report_duration_seconds_bucket[$__rate_interval])))`, "99th percentile"},
			}},
			{"Reconciles that failed", "", series, "ops", 12, one(`sum by (controller) (rate(controller_runtime_reconcile_errors_total[$__rate_interval]))`, "{{controller}}")},
			{"Memory of managers", "", series, "bytes", 12, one(`process_resident_memory_bytes and on (instance) elemental_agent_api_connected_hosts`, "{{instance}}")},
		}},
	}
}

// object is a JSON object.
type object map[string]any

// dashboard returns the dashboard in Grafana's format.
func dashboard() (string, error) {
	var panels []object
	y := 0
	add := func(of object, w, h, x int) {
		of["id"], of["gridPos"] = len(panels)+1, object{"h": h, "w": w, "x": x, "y": y}
		panels = append(panels, of)
	}
	for _, r := range rows() {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, width, 1, 0)
		y++
		x, height := 0, 0
		for _, p := range r.panels {
			if x+p.width > width {
				x, y = 0, y+height
			}
			height = 8
			if p.kind == stat {
				height = 4
			}
			add(p.object(), p.width, height, x)
			x += p.width
		}
		y += height
	}
	text, err := json.MarshalIndent(object{
		"uid": "elemental-fleet", "title": "Elemental fleet", "tags": []string{"cluster-api", "elemental"},
		"schemaVersion": 39, "editable": true, "refresh": "1m", "timezone": "browser",
		"time": object{"from": "now-6h", "to": "now"},
		"templating": object{"list": []object{{
			"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
		}}},
		"panels": panels,
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	return string(text) + "\n", nil
}

// object returns the panel in Grafana's format.
func (p panel) object() object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var targets []object
	for i, q := range p.queries {
		target := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr}
		if q.legend != "" {
			target["legendFormat"] = q.legend
		}
		targets = append(targets, target)
	}
	defaults := object{"custom": object{"axisSoftMin": 0}}
	if p.unit != "" {
		defaults["unit"] = p.unit
	}
	out := object{
		"type": p.kind, "title": p.title, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	if p.description != "" {
		out["description"] = p.description
	}
	return out
}
