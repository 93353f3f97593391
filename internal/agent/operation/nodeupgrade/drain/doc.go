// Package drain moves the Pods of a Node elsewhere, before its kubelet gets another minor
// version.
//
// It evicts, so that PodDisruptionBudgets are respected. A Pod without a controller is
// evicted too, as Cluster API does when it deletes a Machine, and is not made again.
package drain
