// Package etcd talks to the etcd member of a kubeadm control plane on this host: it asks
// whether the member is healthy and which members its cluster has, and saves snapshots.
//
// It uses the client certificate that kubeadm made for health checks. A snapshot is one
// gRPC call, Maintenance.Snapshot, which is a request of HTTP/2 with framed messages. The
// package writes and reads these frames itself, because the agent must not depend on
// etcd's client.
package etcd
