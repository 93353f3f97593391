package facts

import (
	"regexp"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxSnapshotVersion bounds versions, as the API does.
const maxSnapshotVersion = 63

var (
	snapshotID     = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,62}$`)
	snapshotDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// setEtcdSnapshots sets which snapshots of etcd a control-plane host reports. Those of another
// cluster than the one that the host is claimed for are left out, and so are invalid ones.
func setEtcdSnapshots(host *infrav1.ElementalHost, in protocol.EtcdSnapshotReport) {
	if !host.IsBoundOrHeld() || !host.Spec.Claim.Role.IsControlPlane() {
		return
	}
	isOwn := func(id string, of protocol.EtcdCluster) bool {
		return snapshotID.MatchString(id) && of.Namespace == host.Namespace && of.Name == host.Spec.Claim.ClusterName
	}
	out := &infrav1.HostEtcdSnapshots{}
	for _, s := range in.Snapshots {
		isValid := isOwn(s.ID, s.Cluster) && snapshotDigest.MatchString(s.SHA256) && s.SizeBytes > 0 && s.Revision >= 0
		if !isValid || isListed(out.Items, s.ID) || len(out.Items) == protocol.MaxEtcdSnapshots {
			continue
		}
		out.Items = append(out.Items, infrav1.HostEtcdSnapshot{
			ID: s.ID, CompletedAt: timeOf(&s.CompletedAt), Revision: s.Revision, SizeBytes: s.SizeBytes, SHA256: s.SHA256,
			KubernetesVersion: bounded(s.KubernetesVersion, maxSnapshotVersion), EtcdVersion: bounded(s.EtcdVersion, maxSnapshotVersion),
		})
	}
	if f := in.Failure; f != nil && isOwn(f.ID, f.Cluster) {
		out.Failure = &infrav1.HostEtcdSnapshotFailure{ID: f.ID, Message: bounded(f.Message, protocol.MaxMessageBytes)}
		if out.Failure.Message == "" {
			out.Failure.Message = "the host does not say why"
		}
	}
	host.Status.EtcdSnapshots = out
}

func isListed(items []infrav1.HostEtcdSnapshot, id string) bool {
	for i := range items {
		if items[i].ID == id {
			return true
		}
	}
	return false
}
