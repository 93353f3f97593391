package plan

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// desiredEtcdSnapshot returns the snapshot that the host is asked for, or nil.
func desiredEtcdSnapshot(host *infrav1.ElementalHost, cluster Cluster) *protocol.EtcdSnapshot {
	infra, claim := cluster.Infra, host.Spec.Claim
	request := EtcdSnapshotRequest(infra)
	if request == nil || request.HostName != host.Name || claim.Phase != infrav1.ClaimBound || !claim.Role.IsControlPlane() ||
		!host.IsBootstrapped() || !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdSnapshot)) {
		return nil
	}
	of := protocol.EtcdCluster{Namespace: host.Namespace, Name: claim.ClusterName}
	for _, owner := range infra.OwnerReferences {
		if owner.Kind == "Cluster" && owner.Name == claim.ClusterName {
			of.UID = string(owner.UID)
		}
	}
	return &protocol.EtcdSnapshot{ID: infrav1.EtcdSnapshotID(request.ScheduledAt), Cluster: of, Keep: infra.Spec.EtcdSnapshots.OnHosts()}
}

// EtcdSnapshotRequest returns the request for a snapshot that plans follow, or nil. infra may
// be nil.
func EtcdSnapshotRequest(infra *infrav1.ElementalCluster) *infrav1.EtcdSnapshotRequest {
	if infra == nil || infra.Spec.EtcdSnapshots == nil || infra.Spec.EtcdSnapshotRecord == nil || !infra.DeletionTimestamp.IsZero() {
		return nil
	}
	return infra.Spec.EtcdSnapshotRecord.Request
}
