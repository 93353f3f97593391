package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func manageExternally(c *infrav1.ElementalCluster) {
	c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "another"}
}

// Nothing of this provider may remain in the way of a cluster that something else manages.
func TestClusterBecomesExternallyManaged(t *testing.T) {
	for name, deleted := range map[string]bool{"running": false, "being deleted": true} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.Expect(f.hooked()).To(Equal([]string{"m1"}))
			reserved := f.host("h9", "10.0.0.9", func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}
			})
			controllertest.Change(f.Fixture, f.infra, manageExternally)
			spec, status := f.infra.Spec.DeepCopy(), f.infra.Status.DeepCopy()
			if deleted {
				f.Delete(f.infra)
			}
			f.reconcileUntilStable()
			f.Expect(f.hooked()).To(BeEmpty(), "the deletion of the Machine would wait for nobody")
			f.Expect(f.claimOf(reserved)).To(Equal("free"))
			f.Expect(f.Exists(f.infra)).To(Equal(!deleted))
			if !deleted {
				f.Expect(f.infra.Finalizers).To(BeEmpty())
				f.Expect(f.infra.Spec).To(Equal(*spec))
				f.Expect(f.infra.Status).To(Equal(*status))
			}
		})
	}
}

func TestPausedExternallyManagedClusterStays(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		manageExternally(c)
		c.Annotations[clusterv1.PausedAnnotation] = ""
	})
	f.reconcileUntilStable()
	f.Expect(f.Client.Writes()).To(BeEmpty())
	f.Expect(f.hooked()).To(Equal([]string{"m1"}))
}
