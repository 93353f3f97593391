package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// Only labels that are chosen reach the Node, and only while the host is one.
func TestLabelsOfTheNode(t *testing.T) {
	labels := map[string]string{
		"topology.kubernetes.io/zone": "berlin", "topology.kubernetes.io/region": "de",
		"node.cluster.x-k8s.io/rack": "r1", "shop.node.cluster.x-k8s.io/till": "",
		"site": "a", "node-role.kubernetes.io/gpu": "", "node-restriction.kubernetes.io/x": "", "kubernetes.io/hostname": "h",
		"evilnode.cluster.x-k8s.io/a": "", "node.cluster.x-k8s.io": "", "cluster.x-k8s.io/cluster-name": "c",
	}
	chosen := map[string]string{
		"topology.kubernetes.io/zone": "berlin", "topology.kubernetes.io/region": "de",
		"node.cluster.x-k8s.io/rack": "r1", "shop.node.cluster.x-k8s.io/till": "",
	}
	for name, tt := range map[string]struct {
		claim *infrav1.HostClaim
		want  map[string]string
	}{
		"free":      {nil, nil},
		"reserved":  {&infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}, nil},
		"bound":     {&infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}, chosen},
		"held":      {&infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimHeld}, chosen},
		"releasing": {&infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimReleasing}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{}
			host.Labels = labels
			host.Spec.Approval, host.Spec.Claim = infrav1.ApprovalApproved, tt.claim
			g.Expect(plan.For(host, plan.Site{}, plan.Cluster{}).Desired.NodeLabels).To(Equal(tt.want))
		})
	}
}
