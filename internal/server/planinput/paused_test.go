package planinput

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func ownerCluster(name string, paused bool) *clusterv1.Cluster {
	c := newOwner(name)
	if paused {
		c.Spec.Paused = new(true)
	}
	return c
}

func elementalMachine(host, claim string, annotations map[string]string) *infrav1.ElementalMachine {
	m := &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-" + host, Annotations: annotations}}
	m.Spec.HostRef = &infrav1.HostReference{Name: host, ClaimID: claim}
	return m
}

func TestClusterOfAPausedHost(t *testing.T) {
	for name, role := range map[string]infrav1.ClaimRole{"worker": infrav1.RoleWorker, "initial host": infrav1.RoleInitialControlPlane} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := newHost("a", "c", role)
			vip := newCluster("c")
			vip.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeVIP
			for _, objects := range [][]client.Object{{}, {newCluster("c")}, {vip}} {
				for _, paused := range []bool{true, false} {
					cluster, err := newReader(t, append(objects, ownerCluster("c", paused))...).Cluster(t.Context(), host)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(cluster.Paused).To(Equal(paused))
				}
			}
		})
	}
	g := NewWithT(t)
	releasing := newHost("a", "c", infrav1.RoleWorker, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
	cluster, err := newReader(t, ownerCluster("c", true)).Cluster(t.Context(), releasing)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cluster.Paused).To(BeTrue())
}

func TestPauseWakesHosts(t *testing.T) {
	g := NewWithT(t)
	woken := &wakes{}
	releasing := func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }
	n := NewNotifier(newReader(t, newHost("a", "c", infrav1.RoleControlPlane), newHost("b", "c", infrav1.RoleWorker, releasing), newHost("x", "d", infrav1.RoleWorker)), woken, nil)
	running, paused := ownerCluster("c", false), ownerCluster("c", true)
	n.ClusterChanged(t.Context(), nil, running)
	g.Expect(woken.take()).To(ConsistOf("a", "b"), "the Cluster was created")
	n.ClusterChanged(t.Context(), running, paused)
	g.Expect(woken.take()).To(ConsistOf("a", "b"), "the Cluster was paused")
	n.ClusterChanged(t.Context(), paused, running)
	g.Expect(woken.take()).To(ConsistOf("a", "b"), "the Cluster was resumed")
	n.ClusterChanged(t.Context(), running, running)
	g.Expect(woken.take()).To(BeEmpty())
	n.ClusterDeleted(t.Context(), paused)
	g.Expect(woken.take()).To(ConsistOf("a"), "a host that waits for its reset must not begin it before a move deletes the host")

	machine, pausedMachine := elementalMachine("a", "claim", nil), elementalMachine("a", "claim", map[string]string{clusterv1.PausedAnnotation: ""})
	n.MachineChanged(t.Context(), nil, machine)
	n.MachineChanged(t.Context(), machine, machine)
	n.MachineChanged(t.Context(), pausedMachine, pausedMachine)
	g.Expect(woken.take()).To(BeEmpty())
	n.MachineChanged(t.Context(), nil, pausedMachine)
	n.MachineChanged(t.Context(), machine, pausedMachine)
	n.MachineChanged(t.Context(), pausedMachine, machine)
	g.Expect(woken.take()).To(Equal([]string{"a", "a", "a"}))
	pausedMachine.Spec.HostRef = nil
	n.MachineChanged(t.Context(), machine, pausedMachine)
	g.Expect(woken.take()).To(BeEmpty(), "it has no host")
}
