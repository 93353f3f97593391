// Package etcdrestore reconciles ElementalEtcdRestores: it shows what a restore would do, and
// once a person has confirmed it, pauses the Cluster, has the host restore etcd, and lets Cluster
// API go on.
//
// What was begun is recorded in spec, so that no restore runs twice: see EtcdRestoreRequest.
package etcdrestore
