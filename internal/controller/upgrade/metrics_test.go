package upgrade_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/upgrade"
)

// The leader counts machines by what their condition says. A reason that a stranger wrote makes
// no series, and other replicas count nothing.
func TestMetrics(t *testing.T) {
	f := newFixture(t)
	f.release()
	counted := upgrade.Reconciler{Client: client.NewNamespacedClient(f.Client, f.Namespace)}
	elected := make(chan struct{})
	registry := prometheus.NewRegistry()
	f.Expect(counted.RegisterMetrics(registry, elected)).To(Succeed())
	f.Expect(counted.RegisterMetrics(registry, elected)).To(MatchError(ContainSubstring("registering metrics")))
	f.Expect(testutil.GatherAndCount(registry)).To(BeZero())
	close(elected)

	failed, strange := f.node("h1", controllertest.ControlPlane), f.node("h2", controllertest.ControlPlane)
	f.node("h3")
	failed.ask()
	failed.reconcile()
	failed.report(infrav1.OperationFailed, "kubelet", "rolled back: the kubelet did not start")
	failed.expect(no, infrav1.UpgradeRolledBackReason)
	controllertest.ChangeStatus(f.Fixture, strange.machine, func(m *infrav1.ElementalMachine) {
		m.Status.Conditions = append(m.Status.Conditions, failed.machine.Status.Conditions...)
		for i := range m.Status.Conditions {
			m.Status.Conditions[i].Reason = "Strange"
		}
	})
	gathered, err := registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(gathered).To(HaveLen(1))
	values := map[string]float64{}
	for _, series := range gathered[0].GetMetric() {
		values[series.GetLabel()[0].GetValue()] = series.GetGauge().GetValue()
	}
	f.Expect(values).To(HaveLen(13))
	f.Expect(values).To(HaveKeyWithValue("RolledBack", 1.0))
	f.Expect(values).To(HaveKeyWithValue("UpToDate", 0.0))
	f.Expect(values).NotTo(HaveKey("Strange"))
	problems, err := testutil.GatherAndLint(registry)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(problems).To(BeEmpty())
}
