// Package survey takes stock of a lab's host from outside: its files, mounts,
// processes, network, packet filter, users, units, kernel settings, cgroups,
// namespaces and containers. Two surveys of one host compare to the lines that
// came and went, but for an allow-list in which each entry has its reason.
//
// Modules of the kernel are left out: all hosts of a lab share the machine's,
// and a module that is loaded changes nothing by itself.
package survey
