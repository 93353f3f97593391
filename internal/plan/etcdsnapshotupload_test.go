package plan_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// uploading returns a cluster whose last snapshot, of host h1, is not at the destination.
func uploading(changes ...func(*plan.Cluster)) plan.Cluster {
	return snapshotting(append([]func(*plan.Cluster){func(c *plan.Cluster) {
		c.Infra.Spec.EtcdSnapshots.Destination = &infrav1.EtcdSnapshotDestination{}
		c.Infra.Spec.EtcdSnapshots.Recipients = []string{"age1x"}
		c.Infra.Spec.EtcdSnapshotRecord = &infrav1.EtcdSnapshotRecord{Last: &infrav1.EtcdSnapshotTaken{
			ScheduledAt: metav1.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), HostName: "h1",
		}}
		c.Infra.Status.EtcdSnapshots = &infrav1.UploadedEtcdSnapshots{Items: []infrav1.UploadedEtcdSnapshot{{ID: "20261124T060000Z", HostName: "h1"}}}
	}}, changes...)...)
}

func TestEtcdSnapshotUpload(t *testing.T) {
	const id = "20261124T120000Z"
	able := func(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		return node(infrav1.RoleControlPlane, append([]func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) {
			capable(h, "Bootstrap", "Reset", "EtcdSnapshot", "EtcdSnapshotUpload")
			h.Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{{ID: id}}}
		}}, changes...)...)
	}
	infra := func(change func(*infrav1.ElementalCluster)) plan.Cluster {
		return uploading(func(c *plan.Cluster) { change(c.Infra) })
	}
	for name, tc := range map[string]struct {
		host    *infrav1.ElementalHost
		cluster plan.Cluster
		want    bool
	}{
		"wanted":                {able(), uploading(), true},
		"another host":          {able(func(h *infrav1.ElementalHost) { h.Name = "h2" }), uploading(), false},
		"the agent can't":       {able(func(h *infrav1.ElementalHost) { capable(h, "EtcdSnapshot") }), uploading(), false},
		"a worker":              {able(func(h *infrav1.ElementalHost) { h.Spec.Claim.Role = infrav1.RoleWorker }), uploading(), false},
		"held":                  {able(phase(infrav1.ClaimHeld)), uploading(), false},
		"fenced":                {able(fence), uploading(), false},
		"paused":                {able(), uploading(func(c *plan.Cluster) { c.Paused = true }), false},
		"not on the host":       {able(func(h *infrav1.ElementalHost) { h.Status.EtcdSnapshots = nil }), uploading(), false},
		"no destination":        {able(), infra(func(c *infrav1.ElementalCluster) { c.Spec.EtcdSnapshots.Destination = nil }), false},
		"no snapshots":          {able(), infra(func(c *infrav1.ElementalCluster) { c.Spec.EtcdSnapshots = nil }), false},
		"none taken":            {able(), infra(func(c *infrav1.ElementalCluster) { c.Spec.EtcdSnapshotRecord = nil }), false},
		"nothing read yet":      {able(), infra(func(c *infrav1.ElementalCluster) { c.Status.EtcdSnapshots = nil }), false},
		"deleted":               {able(), infra(func(c *infrav1.ElementalCluster) { c.DeletionTimestamp = new(metav1.Now()) }), false},
		"of an unknown cluster": {able(), plan.Cluster{}, false},
		"already there":         {able(), infra(func(c *infrav1.ElementalCluster) { c.Status.EtcdSnapshots.Items[0].ID = id }), false},
		"there from another host": {able(), infra(func(c *infrav1.ElementalCluster) {
			c.Status.EtcdSnapshots.Items[0].ID, c.Status.EtcdSnapshots.Items[0].HostName = id, "h2"
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := plan.For(tc.host, site, tc.cluster).Desired.EtcdSnapshotUpload
			if !tc.want {
				g.Expect(got).To(BeNil())
				return
			}
			g.Expect(got).To(Equal(&protocol.EtcdSnapshotUpload{ID: id, Recipients: []string{"age1x"}}))
		})
	}

	g := NewWithT(t)
	folder := infra(func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots.Destination.Folder = &infrav1.EtcdSnapshotFolder{Path: "/mnt/backups"}
	})
	g.Expect(plan.For(able(), site, folder).Desired.EtcdSnapshotUpload).To(BeNil(), "an agent that would ignore the folder")
	newer := able(func(h *infrav1.ElementalHost) {
		capable(h, "Bootstrap", "Reset", "EtcdSnapshot", "EtcdSnapshotUpload", "EtcdSnapshotFolder")
	})
	g.Expect(plan.For(newer, site, folder).Desired.EtcdSnapshotUpload).To(HaveField("Folder",
		Equal(&protocol.EtcdSnapshotFolder{Path: "/mnt/backups", HostName: "h1", Keep: 28})))
}
