// Package bench measures what this provider costs and how fast it is, with thousands of virtual hosts (package fleet)
// on a management cluster of plain processes (package embedded). Each Scenario answers one question and can be run by
// itself; its figures become a table (package table).
//
// What the manager costs is read from the kernel and from the API server's own counts (package measure), and compared
// with the same done without the manager, in the same run (package bare): a ratio holds on other machines, too.
//
// The virtual hosts run in the process that measures, the manager in one of its own. Cluster API's managers are left
// out, so that nothing else has a share in the figures; but for the scenario clusters, where they take part.
package bench
