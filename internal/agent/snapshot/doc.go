// Package snapshot takes snapshots of etcd on a control-plane host and keeps the newest ones.
//
// Snapshots are in the agent's state directory, in a folder for each cluster that only root
// can enter. The name of the folder follows from the certificate authority of etcd, which a
// cluster keeps when it moves to another management cluster, and shares with no other:
//
//	etcd-snapshots/AUTHORITY/ID.db        the snapshot, as `etcdctl snapshot save` writes it
//	etcd-snapshots/AUTHORITY/ID.json      what it is; written last, so a snapshot with it is complete
//	etcd-snapshots/AUTHORITY/ID.incoming  a snapshot that is downloaded, until it is complete
//
// A reset leaves them there unless it erases data disks too.
package snapshot
