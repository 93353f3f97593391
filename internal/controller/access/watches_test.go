package access

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// Each reconcile asks a workload cluster, so what does not concern access causes none.
func TestEventsOfInfraClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*infrav1.ElementalCluster)
		concerns bool
	}{
		"spec":                 {func(c *infrav1.ElementalCluster) { c.Generation++ }, true},
		"a pause":              {func(c *infrav1.ElementalCluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, true},
		"a label":              {func(c *infrav1.ElementalCluster) { c.Labels = map[string]string{clusterv1.WatchLabel: "x"} }, true},
		"its owner":            {func(c *infrav1.ElementalCluster) { c.OwnerReferences = []metav1.OwnerReference{{Name: "c"}} }, true},
		"its tunnels":          {func(c *infrav1.ElementalCluster) { c.Status.Conditions[0].Status = metav1.ConditionFalse }, true},
		"a lost status":        {func(c *infrav1.ElementalCluster) { c.Status.Conditions = c.Status.Conditions[:1] }, true},
		"the condition itself": {func(c *infrav1.ElementalCluster) { c.Status.Conditions[1].Message = "new" }, false},
		"another condition": {func(c *infrav1.ElementalCluster) {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: "Ready"})
		}, false},
		"other parts of status": {func(c *infrav1.ElementalCluster) { c.Status.VirtualIP = "10.0.0.1" }, false},
		"nothing":               {func(*infrav1.ElementalCluster) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := &infrav1.ElementalCluster{}
			before.Status.Conditions = []metav1.Condition{
				{Type: infrav1.TunnelReadyCondition, Status: metav1.ConditionTrue}, {Type: infrav1.AccessReadyCondition, Status: metav1.ConditionTrue},
			}
			after := before.DeepCopy()
			tc.change(after)
			passes := reconcile.Changes(concernsInfraCluster)
			g.Expect(passes.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(tc.concerns))
			g.Expect(passes.Create(event.CreateEvent{Object: after})).To(BeTrue())
			g.Expect(passes.Delete(event.DeleteEvent{Object: after})).To(BeFalse())
		})
	}
}

func TestEventsOfClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*clusterv1.Cluster)
		concerns bool
	}{
		"a pause":                  {func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }, true},
		"a pause by annotation":    {func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, true},
		"another reference":        {func(c *clusterv1.Cluster) { c.Spec.InfrastructureRef.Name = "other" }, true},
		"its control plane begins": {func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = new(true) }, true},
		"its phase":                {func(c *clusterv1.Cluster) { c.Status.Phase = "Provisioned" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &clusterv1.Cluster{}
			after := before.DeepCopy()
			tc.change(after)
			NewWithT(t).Expect(reconcile.Changes(concernsCluster).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(tc.concerns))
		})
	}
}
