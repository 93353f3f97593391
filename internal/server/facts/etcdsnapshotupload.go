package facts

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// setEtcdSnapshotUpload sets what a control-plane host says of its uploads. What is in a bucket is
// read there; of a folder, only the host can tell.
func setEtcdSnapshotUpload(host *infrav1.ElementalHost, in protocol.EtcdSnapshotUploadReport) {
	if !host.IsBoundOrHeld() || !host.Spec.Claim.Role.IsControlPlane() {
		return
	}
	out := &infrav1.HostEtcdSnapshotUpload{}
	if l := in.Last; l != nil && snapshotID.MatchString(l.ID) && snapshotDigest.MatchString(l.SHA256) && l.SizeBytes > 0 &&
		l.Object != "" && len(l.Object) <= protocol.MaxObjectName {
		out.Last = &infrav1.HostEtcdSnapshotObject{ID: l.ID, Object: bounded(l.Object, protocol.MaxObjectName), SizeBytes: l.SizeBytes, SHA256: l.SHA256}
	}
	if f := in.Failure; f != nil && snapshotID.MatchString(f.ID) {
		out.Failure = &infrav1.HostEtcdSnapshotFailure{ID: f.ID, Message: bounded(f.Message, protocol.MaxMessageBytes)}
		if out.Failure.Message == "" {
			out.Failure.Message = "the host does not say why"
		}
	}
	host.Status.EtcdSnapshotUpload = out
}
