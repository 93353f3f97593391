// Package halt ends the control plane of this host while etcd of its cluster is restored on
// another host, and starts it again if the restore fails. Members of the former etcd must not
// serve beside the new one.
//
// After a restore that succeeds the host stays halted until its reset.
package halt
