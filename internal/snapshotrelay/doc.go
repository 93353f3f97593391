// Package snapshotrelay carries connections of hosts to the storages of snapshots, for sites from which
// only the manager can be reached. What hosts and storages exchange is TLS from end to end, so the manager
// sees neither snapshots nor permissions. An administrator of the management cluster names the storages:
// otherwise whoever may write ElementalClusters could connect to anything that the manager can reach.
package snapshotrelay
