// Package replacement refuses the deletion of Machines that Cluster API wants to replace, where the
// mode of their cluster is Required.
//
// Cluster API does not always ask this provider before it replaces a Machine: its feature gates
// may be off, or a control plane replaces a Machine that is outdated and unhealthy.
package replacement
