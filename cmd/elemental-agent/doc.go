// Elemental-agent runs on a host that Cluster API may turn into a Node. It
// enrols the host with a management cluster, waits for a plan and carries it
// out. See elemental-agent --help.
package main
