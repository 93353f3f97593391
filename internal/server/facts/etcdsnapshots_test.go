package facts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func snapshotFacts(id string) protocol.EtcdSnapshotFacts {
	return protocol.EtcdSnapshotFacts{
		ID: id, Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c"}, CompletedAt: time.Unix(100, 5).UTC(), Revision: 7,
		SizeBytes: 42, SHA256: strings.Repeat("a", 64), KubernetesVersion: "v1.36.3", EtcdVersion: "3.6.8",
	}
}

// A host says only which snapshots it has of the cluster that it is claimed for, in bounds.
func TestThreat67_ReportedSnapshots(t *testing.T) {
	good := infrav1.HostEtcdSnapshot{
		ID: "s", CompletedAt: metav1.NewTime(time.Unix(100, 0).UTC()), Revision: 7, SizeBytes: 42, SHA256: strings.Repeat("a", 64),
		KubernetesVersion: "v1.36.3", EtcdVersion: "3.6.8",
	}
	with := func(change func(*protocol.EtcdSnapshotFacts)) protocol.EtcdSnapshotReport {
		s := snapshotFacts("s")
		change(&s)
		return protocol.EtcdSnapshotReport{Snapshots: []protocol.EtcdSnapshotFacts{s}}
	}
	failed := func(of protocol.EtcdCluster, message string) protocol.EtcdSnapshotReport {
		return protocol.EtcdSnapshotReport{Failure: &protocol.EtcdSnapshotFailure{ID: "s", Cluster: of, Message: message}}
	}
	own := protocol.EtcdCluster{Namespace: "ns", Name: "c", UID: "former"}
	none := &infrav1.HostEtcdSnapshots{}
	for name, tc := range map[string]struct {
		report protocol.EtcdSnapshotReport
		want   *infrav1.HostEtcdSnapshots
	}{
		"none": {protocol.EtcdSnapshotReport{}, none},
		"one":  {with(func(*protocol.EtcdSnapshotFacts) {}), &infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{good}}},
		"twice": {protocol.EtcdSnapshotReport{Snapshots: []protocol.EtcdSnapshotFacts{snapshotFacts("s"), snapshotFacts("s")}},
			&infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{good}}},
		"of another cluster":   {with(func(s *protocol.EtcdSnapshotFacts) { s.Cluster.Name = "d" }), none},
		"of another namespace": {with(func(s *protocol.EtcdSnapshotFacts) { s.Cluster.Namespace = "d" }), none},
		"no ID":                {with(func(s *protocol.EtcdSnapshotFacts) { s.ID = "" }), none},
		"a strange ID":         {with(func(s *protocol.EtcdSnapshotFacts) { s.ID = "a/b" }), none},
		"no digest":            {with(func(s *protocol.EtcdSnapshotFacts) { s.SHA256 = "" }), none},
		"no size":              {with(func(s *protocol.EtcdSnapshotFacts) { s.SizeBytes = 0 }), none},
		"a negative revision":  {with(func(s *protocol.EtcdSnapshotFacts) { s.Revision = -1 }), none},
		"a failure":            {failed(own, "no space"), &infrav1.HostEtcdSnapshots{Failure: &infrav1.HostEtcdSnapshotFailure{ID: "s", Message: "no space"}}},
		"a failure without a word": {failed(own, ""),
			&infrav1.HostEtcdSnapshots{Failure: &infrav1.HostEtcdSnapshotFailure{ID: "s", Message: "the host does not say why"}}},
		"a failure without end": {failed(own, strings.Repeat("x", 1<<20)),
			&infrav1.HostEtcdSnapshots{Failure: &infrav1.HostEtcdSnapshotFailure{ID: "s", Message: strings.Repeat("x", 1024)}}},
		"a failure of another cluster": {failed(protocol.EtcdCluster{Namespace: "ns", Name: "d"}, "x"), none},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := claimedHost(infrav1.ClaimBound, infrav1.RoleControlPlane)
			SetReported(host, &protocol.Report{EtcdSnapshots: &tc.report}, time.Now())
			g.Expect(host.Status.EtcdSnapshots).To(Equal(tc.want))
			SetReported(host, &protocol.Report{}, time.Now())
			g.Expect(host.Status.EtcdSnapshots).To(Equal(tc.want), "a report without them says nothing about them")
		})
	}
}

func claimedHost(phase infrav1.ClaimPhase, role infrav1.ClaimRole) *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h"}}
	host.Spec.Claim = &infrav1.HostClaim{ID: "id", ClusterName: "c", Phase: phase, Role: role}
	return host
}

func TestSnapshotsOfOthers(t *testing.T) {
	g := NewWithT(t)
	report := &protocol.Report{EtcdSnapshots: &protocol.EtcdSnapshotReport{Snapshots: []protocol.EtcdSnapshotFacts{snapshotFacts("s")}}}
	for _, host := range []*infrav1.ElementalHost{
		{}, claimedHost(infrav1.ClaimReleasing, infrav1.RoleControlPlane), claimedHost(infrav1.ClaimBound, infrav1.RoleWorker),
	} {
		SetReported(host, report, time.Now())
		g.Expect(host.Status.EtcdSnapshots).To(BeNil())
	}
}

func TestThreat67_ManySnapshots(t *testing.T) {
	g := NewWithT(t)
	host, report := claimedHost(infrav1.ClaimBound, infrav1.RoleControlPlane), &protocol.EtcdSnapshotReport{}
	for i := range 1000 {
		report.Snapshots = append(report.Snapshots, snapshotFacts(fmt.Sprint(i)))
	}
	SetReported(host, &protocol.Report{EtcdSnapshots: report}, time.Now())
	g.Expect(host.Status.EtcdSnapshots.Items).To(HaveLen(protocol.MaxEtcdSnapshots))
}
