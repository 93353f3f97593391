// Package move proves that `clusterctl move` moves hosts in every state: it waits for the
// operations that run, plans stay the same, and deletions continue on the target.
package move
