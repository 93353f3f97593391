// Package etcdrestore replaces the data of the host's member of etcd by a snapshot, or makes the
// member the only one with the data that it has. Then the host is a cluster of etcd with one
// member. kubeadm must have set up the control plane, or sets it up again.
//
// The steps are rebuild if the host has lost its control plane, fetch if the snapshot is at the
// destination, check, prepare, halt, copy if the member keeps its data, swap, kubelet after a
// rebuild, start, gate, nodes and finish. The operation's document has the step that may have been begun;
// each step can be repeated, so an agent that starts again resumes. etcdutl makes the new data in a
// folder beside the data that is in use. The control plane stands still while the two change places,
// and its manifests are not in the kubelet's folder then: after a power cut nothing starts etcd
// without data, which would be a new, empty cluster. For the same reason a rebuild sets up the
// kubelet only when the data is in its place.
//
// The former data stays beside the new one, in the folder of the member's data, until the next
// restore or a reset. If the control plane is not well with the new data, the former one goes
// back.
//
// The message of a restore that failed begins with a protocol.RestoreOutcome.
package etcdrestore
