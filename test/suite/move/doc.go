// Package move proves that `clusterctl move` moves hosts in every state: it waits for the
// operations that run, plans stay the same, and deletions continue on the target. It also proves that no host is touched when the management
// cluster is restored from an older snapshot of its etcd, or from an older backup of its objects.
package move
