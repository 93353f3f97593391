// Package snapshots measures what snapshots of etcd cost a cluster: how long requests that write take while the agent takes
// them and uploads them, beside `etcdctl snapshot save`.
package snapshots
