package planinput

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// A host that restores etcd learns the hosts that have a Machine of the cluster, also those that are being
// released: their Machines are still there.
func TestProviderIDsOfARestore(t *testing.T) {
	const worker = infrav1.RoleWorker
	foreign := tunneling("f", worker)
	foreign.Spec.Claim.ClusterName = "d"
	free := tunneling("g", worker)
	free.Spec.Claim = nil
	peers := []client.Object{
		tunneling("b", worker), tunneling("a", infrav1.RoleControlPlane), tunneling("held", worker, held), foreign, free,
		tunneling("r", worker, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }),
	}
	many := append([]client.Object{}, peers...)
	for i := range maxProviderIDs {
		many = append(many, tunneling(fmt.Sprintf("m-%d", i), worker))
	}
	for name, tc := range map[string]struct {
		restore *infrav1.HostEtcdRestore
		peers   []client.Object
		want    []string
	}{
		"a restore":              {&infrav1.HostEtcdRestore{ID: "1"}, peers, []string{"elemental://edge/a", "elemental://edge/b", "elemental://edge/h", "elemental://edge/r"}},
		"no restore":             {nil, peers, nil},
		"of too large a cluster": {&infrav1.HostEtcdRestore{ID: "1"}, many, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host, infra := tunneling("h", infrav1.RoleControlPlane), newCluster("c")
			host.Spec.EtcdRestore = tc.restore
			cluster, err := newReader(t, append(tc.peers, newOwner("c"), infra, host)...).Cluster(t.Context(), host)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cluster.ProviderIDs).To(Equal(tc.want))
		})
	}
}
