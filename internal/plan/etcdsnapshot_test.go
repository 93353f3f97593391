package plan_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// snapshotting returns a cluster that asks host h1 for a snapshot.
func snapshotting(changes ...func(*plan.Cluster)) plan.Cluster {
	infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra"}}
	infra.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "c", UID: "uid"}}
	infra.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{Retention: infrav1.EtcdSnapshotRetention{OnHosts: new(int32(3))}}
	infra.Spec.EtcdSnapshotRecord = &infrav1.EtcdSnapshotRecord{Request: &infrav1.EtcdSnapshotRequest{
		ScheduledAt: metav1.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), HostName: "h1",
	}}
	c := plan.Cluster{Infra: infra}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func TestEtcdSnapshot(t *testing.T) {
	able := func(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		return node(infrav1.RoleControlPlane, append([]func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) {
			capable(h, "Bootstrap", "Reset", "EtcdSnapshot")
		}}, changes...)...)
	}
	annotated := func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }
	for name, tc := range map[string]struct {
		host    *infrav1.ElementalHost
		cluster plan.Cluster
		want    bool
	}{
		"asked":           {able(), snapshotting(), true},
		"another host":    {able(func(h *infrav1.ElementalHost) { h.Name = "h2" }), snapshotting(), false},
		"the agent can't": {node(infrav1.RoleControlPlane), snapshotting(), false},
		"a worker":        {able(func(h *infrav1.ElementalHost) { h.Spec.Claim.Role = infrav1.RoleWorker }), snapshotting(), false},
		"held":            {able(phase(infrav1.ClaimHeld)), snapshotting(), false},
		"released":        {able(phase(infrav1.ClaimReleasing)), snapshotting(), false},
		"fenced":          {able(fence), snapshotting(), false},
		"not bootstrapped": {
			able(func(h *infrav1.ElementalHost) { h.Status.Operations = nil }), snapshotting(), false,
		},
		"the host is paused":    {able(annotated), snapshotting(), false},
		"the cluster is paused": {able(), snapshotting(func(c *plan.Cluster) { c.Paused = true }), false},
		"nothing is due":        {able(), snapshotting(func(c *plan.Cluster) { c.Infra.Spec.EtcdSnapshotRecord.Request = nil }), false},
		"nothing was recorded":  {able(), snapshotting(func(c *plan.Cluster) { c.Infra.Spec.EtcdSnapshotRecord = nil }), false},
		"no schedule":           {able(), snapshotting(func(c *plan.Cluster) { c.Infra.Spec.EtcdSnapshots = nil }), false},
		"unknown cluster":       {able(), plan.Cluster{}, false},
		"the cluster is being deleted": {
			able(), snapshotting(func(c *plan.Cluster) { c.Infra.DeletionTimestamp = new(metav1.Now()) }), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := plan.For(tc.host, site, tc.cluster).Desired.EtcdSnapshot
			if !tc.want {
				g.Expect(got).To(BeNil())
				return
			}
			g.Expect(got).To(Equal(&protocol.EtcdSnapshot{
				ID: "20261124T120000Z", Cluster: protocol.EtcdCluster{Namespace: "edge", Name: "c", UID: "uid"}, Keep: 3,
			}))
		})
	}
}
