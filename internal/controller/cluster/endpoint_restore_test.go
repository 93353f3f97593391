package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// While etcd is restored, control planes stand still. The endpoint does not move to one of them, and moves
// when the Cluster goes on.
func TestThreat90_NoFailoverDuringARestore(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
		c.Spec.Paused = new(true)
		c.Annotations = map[string]string{infrav1.RestoreAnnotation: "r"}
	})
	f.stop("h1")
	f.reconcile()
	f.Clock.Step(2 * failoverAfter)
	f.reconcile()
	f.ExpectCondition(f.infra, clusterv1.PausedCondition, yes, clusterv1.PausedReason)
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))
	f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())

	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
		c.Spec.Paused = nil
		delete(c.Annotations, infrav1.RestoreAnnotation)
	})
	f.reconcile()
	f.Clock.Step(failoverAfter)
	f.reconcile()
	f.Expect(f.endpoint().Host).NotTo(Equal("10.0.0.1"))
}
