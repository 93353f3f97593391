// Package bench measures the cost and the speed of this provider with thousands of virtual hosts (package fleet) on a
// management cluster of plain processes (package embedded). Each Scenario answers one question and can be run on its own;
// its figures become a table (package table).
//
// The costs of the manager come from the kernel and from the API server's metrics (package measure). They are compared with
// a baseline without the manager in the same run (package bare), because ratios hold on other machines, too.
//
// Virtual hosts and the manager run in processes of their own. Cluster API's managers don't run, so that they don't
// influence the figures, except in the scenario clusters.
package bench
