// Package monitoring tests what administrators watch a fleet with: alerts fire and are silent as they
// should, each has a runbook, and alerts and dashboard use metrics that the manager has. With the
// build tag embedded, a real Prometheus scrapes a manager with virtual hosts and answers each query
// of the dashboard.
package monitoring
