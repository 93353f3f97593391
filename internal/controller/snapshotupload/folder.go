package snapshotupload

import (
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// listFolder lists what hosts have reported of the folder in status: what was listed before, and the
// last snapshot if its host says that it is there. The manager believes only the host that has taken
// the last snapshot, and only what that host says about it.
func (r *Reconciler) listFolder(infra *infrav1.ElementalCluster, folder infrav1.EtcdSnapshotFolder, host *infrav1.ElementalHost) {
	var items []infrav1.UploadedEtcdSnapshot
	if infra.Status.EtcdSnapshots != nil {
		items = slices.Clone(infra.Status.EtcdSnapshots.Items)
	}
	// The destination may have been another one.
	items = slices.DeleteFunc(items, func(item infrav1.UploadedEtcdSnapshot) bool { return !isIn(folder, item.Object) })
	if item := r.copiedLast(infra, folder, host); item != nil && infra.UploadedEtcdSnapshot(item.ID, item.HostName) == nil {
		items = slices.Insert(items, 0, *item)
	}
	r.list(infra, items[:min(len(items), infra.Spec.EtcdSnapshots.OffHosts(), infrav1.MaxUploadedEtcdSnapshots)])
}

// copiedLast returns the last snapshot if its host says that it is in the folder, or nil.
func (r *Reconciler) copiedLast(infra *infrav1.ElementalCluster, folder infrav1.EtcdSnapshotFolder, host *infrav1.ElementalHost) *infrav1.UploadedEtcdSnapshot {
	said := reported(host)
	if said == nil {
		return nil
	}
	id := infrav1.EtcdSnapshotID(infra.Spec.EtcdSnapshotRecord.Last.ScheduledAt)
	if said.ID != id || !isIn(folder, said.Object) || path.Base(said.Object) != protocol.EtcdSnapshotObjectName(id, host.Name) {
		return nil
	}
	item := &infrav1.UploadedEtcdSnapshot{
		Object: said.Object, ID: id, HostName: host.Name, SizeBytes: said.SizeBytes, SHA256: said.SHA256, UploadedAt: metav1.NewTime(r.Clock.Now().UTC()),
	}
	if snapshot := host.EtcdSnapshot(id); snapshot != nil {
		item.SnapshotSHA256, item.Revision = snapshot.SHA256, snapshot.Revision
		item.KubernetesVersion, item.EtcdVersion = snapshot.KubernetesVersion, snapshot.EtcdVersion
	}
	return item
}

// isIn reports whether a file is in a folder of a cluster in the folder.
func isIn(folder infrav1.EtcdSnapshotFolder, file string) bool {
	return path.Clean(file) == file && path.Dir(path.Dir(file)) == path.Clean(folder.Path)
}
