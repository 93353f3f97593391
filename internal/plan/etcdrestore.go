package plan

import (
	"k8s.io/utils/ptr"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// etcdRestore returns the requested restore of etcd, if it is unfinished. None begins in
// maintenance.
func etcdRestore(host *infrav1.ElementalHost) []protocol.Operation {
	want, claim := host.Spec.EtcdRestore, host.Spec.Claim
	if want == nil || !claim.Role.IsControlPlane() {
		return nil
	}
	is := host.Operation(infrav1.OperationEtcdRestore, want.ID)
	if !unfinished(is) || is == nil && host.InMaintenance() {
		return nil
	}
	return []protocol.Operation{{
		Type: protocol.OperationEtcdRestore, ID: want.ID, ClusterName: claim.ClusterName, MachineName: claim.MachineName,
		EtcdRestore: &protocol.EtcdRestore{
			SnapshotID: want.SnapshotID, SHA256: want.SHA256, ReplaceHealthy: ptr.Deref(want.ReplaceHealthy, false), Uploaded: ptr.Deref(want.Uploaded, false),
			Cluster: protocol.EtcdCluster{Namespace: host.Namespace, Name: claim.ClusterName},
		},
	}}
}
