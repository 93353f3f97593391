package facts

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// What a host says of its uploads is stored in bounds.
func TestThreat68_ReportedUploads(t *testing.T) {
	last := protocol.EtcdSnapshotObject{ID: "s", Object: "p/a/s.h.tar.age", SizeBytes: 42, SHA256: strings.Repeat("a", 64)}
	with := func(change func(*protocol.EtcdSnapshotObject)) protocol.EtcdSnapshotUploadReport {
		l := last
		change(&l)
		return protocol.EtcdSnapshotUploadReport{Last: &l}
	}
	failed := func(id, message string) protocol.EtcdSnapshotUploadReport {
		return protocol.EtcdSnapshotUploadReport{Failure: &protocol.EtcdSnapshotUploadFailure{ID: id, Message: message}}
	}
	stored := infrav1.HostEtcdSnapshotObject(last)
	for name, tc := range map[string]struct {
		report protocol.EtcdSnapshotUploadReport
		want   infrav1.HostEtcdSnapshotUpload
	}{
		"one":           {with(func(*protocol.EtcdSnapshotObject) {}), infrav1.HostEtcdSnapshotUpload{Last: &stored}},
		"a strange ID":  {with(func(l *protocol.EtcdSnapshotObject) { l.ID = "a/b" }), infrav1.HostEtcdSnapshotUpload{}},
		"no digest":     {with(func(l *protocol.EtcdSnapshotObject) { l.SHA256 = "x" }), infrav1.HostEtcdSnapshotUpload{}},
		"no size":       {with(func(l *protocol.EtcdSnapshotObject) { l.SizeBytes = 0 }), infrav1.HostEtcdSnapshotUpload{}},
		"no object":     {with(func(l *protocol.EtcdSnapshotObject) { l.Object = "" }), infrav1.HostEtcdSnapshotUpload{}},
		"a long object": {with(func(l *protocol.EtcdSnapshotObject) { l.Object = strings.Repeat("x", 1025) }), infrav1.HostEtcdSnapshotUpload{}},
		"a failure":     {failed("s", "no route"), infrav1.HostEtcdSnapshotUpload{Failure: &infrav1.HostEtcdSnapshotFailure{ID: "s", Message: "no route"}}},
		"a failure without a word": {failed("s", ""),
			infrav1.HostEtcdSnapshotUpload{Failure: &infrav1.HostEtcdSnapshotFailure{ID: "s", Message: "the host does not say why"}}},
		"a failure without end": {failed("s", strings.Repeat("x", 1<<20)),
			infrav1.HostEtcdSnapshotUpload{Failure: &infrav1.HostEtcdSnapshotFailure{ID: "s", Message: strings.Repeat("x", 1024)}}},
		"a failure of nothing": {failed("", "x"), infrav1.HostEtcdSnapshotUpload{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := &infrav1.ElementalHost{}
			setEtcdSnapshotUpload(h, tc.report)
			g.Expect(h.Status.EtcdSnapshotUpload).To(BeNil(), "it is not claimed")
			h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
			setEtcdSnapshotUpload(h, tc.report)
			g.Expect(h.Status.EtcdSnapshotUpload).To(BeNil(), "it is a worker")
			h.Spec.Claim.Role = infrav1.RoleControlPlane
			setEtcdSnapshotUpload(h, tc.report)
			g.Expect(h.Status.EtcdSnapshotUpload).To(HaveValue(Equal(tc.want)))
		})
	}
}
