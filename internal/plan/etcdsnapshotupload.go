package plan

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// desiredEtcdSnapshotUpload returns the snapshot that the host is to upload, or nil.
func desiredEtcdSnapshotUpload(host *infrav1.ElementalHost, cluster Cluster) *protocol.EtcdSnapshotUpload {
	claim, taken := host.Spec.Claim, EtcdSnapshotToUpload(cluster.Infra)
	if taken == nil || taken.HostName != host.Name || claim.Phase != infrav1.ClaimBound || !claim.Role.IsControlPlane() ||
		!host.Supports(infrav1.OperationType(protocol.CapabilityEtcdSnapshotUpload)) {
		return nil
	}
	id := infrav1.EtcdSnapshotID(taken.ScheduledAt)
	if host.EtcdSnapshot(id) == nil {
		return nil
	}
	policy := cluster.Infra.Spec.EtcdSnapshots
	upload := &protocol.EtcdSnapshotUpload{ID: id, Recipients: policy.Recipients}
	if folder := policy.Destination.Folder; folder != nil {
		if !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdSnapshotFolder)) {
			return nil
		}
		upload.Folder = &protocol.EtcdSnapshotFolder{Path: folder.Path, HostName: host.Name, Keep: policy.OffHosts()}
	}
	return upload
}

// EtcdSnapshotToUpload returns the snapshot that was taken last if its host has to upload it,
// or nil. It is nil until the destination was read, so that no snapshot is uploaded again when
// the status of the ElementalCluster is lost. infra may be nil.
func EtcdSnapshotToUpload(infra *infrav1.ElementalCluster) *infrav1.EtcdSnapshotTaken {
	if infra == nil || infra.Spec.EtcdSnapshots == nil || infra.Spec.EtcdSnapshots.Destination == nil || !infra.DeletionTimestamp.IsZero() ||
		infra.Spec.EtcdSnapshotRecord == nil || infra.Status.EtcdSnapshots == nil {
		return nil
	}
	last := infra.Spec.EtcdSnapshotRecord.Last
	if last == nil || infra.UploadedEtcdSnapshot(infrav1.EtcdSnapshotID(last.ScheduledAt), last.HostName) != nil {
		return nil
	}
	return last
}
