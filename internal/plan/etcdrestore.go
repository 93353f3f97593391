package plan

import (
	"k8s.io/utils/ptr"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// etcdRestore returns the requested restore of etcd, if it is unfinished. None begins in
// maintenance, or after it was withdrawn.
func etcdRestore(host *infrav1.ElementalHost, cluster Cluster) []protocol.Operation {
	want, claim := host.Spec.EtcdRestore, host.Spec.Claim
	if want == nil || !claim.Role.IsControlPlane() {
		return nil
	}
	is := host.Operation(infrav1.OperationEtcdRestore, want.ID)
	if !unfinished(is) || is == nil && (host.InMaintenance() || !want.WithdrawnAt.IsZero()) {
		return nil
	}
	return []protocol.Operation{{
		Type: protocol.OperationEtcdRestore, ID: want.ID, ClusterName: claim.ClusterName, MachineName: claim.MachineName,
		EtcdRestore: &protocol.EtcdRestore{
			SnapshotID: want.SnapshotID, SHA256: want.SHA256, ReplaceHealthy: ptr.Deref(want.ReplaceHealthy, false), Uploaded: ptr.Deref(want.Uploaded, false),
			OwnData: want.SnapshotID == "", Rebuild: ptr.Deref(want.RebuildControlPlane, false),
			Cluster: protocol.EtcdCluster{Namespace: host.Namespace, Name: claim.ClusterName}, ProviderIDs: cluster.ProviderIDs,
		},
	}}
}

// halt returns the halt of the control plane while etcd is restored on another host, then the start
// if the restore has failed. A host that stands still does nothing else, also after it has halted.
func halt(host *infrav1.ElementalHost) []protocol.Operation {
	want, claim := host.Spec.ControlPlaneHalt, host.Spec.Claim
	if want == nil || !claim.Role.IsControlPlane() {
		return nil
	}
	op := protocol.Operation{Type: protocol.OperationControlPlaneStart, ID: want.ID, ClusterName: claim.ClusterName, MachineName: claim.MachineName}
	if ptr.Deref(want.Ended, false) {
		if is := host.Operation(infrav1.OperationControlPlaneStart, want.ID); !unfinished(is) {
			return nil
		}
		return []protocol.Operation{op}
	}
	op.Type = protocol.OperationControlPlaneHalt
	op.ControlPlaneHalt = &protocol.ControlPlaneHalt{ReplaceHealthy: ptr.Deref(want.ReplaceHealthy, false)}
	return []protocol.Operation{op}
}

// isOfRestore reports whether an operation is part of a restore of etcd.
func isOfRestore(host *infrav1.ElementalHost, kind protocol.OperationType) bool {
	if kind == protocol.OperationReboot {
		return host.Spec.Reboot.RestoreName != ""
	}
	return kind == protocol.OperationEtcdRestore || kind == protocol.OperationControlPlaneHalt || kind == protocol.OperationControlPlaneStart
}
