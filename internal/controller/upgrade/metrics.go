package upgrade

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// countTimeout bounds the list of machines for a scrape. It is read from the cache.
const countTimeout = 5 * time.Second

// countedReasons are the values of the label reason. Any other reason is not counted, so the
// number of series is bounded.
func countedReasons() []string {
	return []string{
		infrav1.KubernetesUpToDateReason, infrav1.UpgradeWaitingForReleaseReason, infrav1.UpgradeWaitingForControlPlane,
		infrav1.UpgradeWaitingForClusterAPIReason, infrav1.UpgradeHostNotConnectedReason, infrav1.UpgradeHostInMaintenanceReason,
		clusterv1.PausedReason, infrav1.UpgradeStagingReason, infrav1.UpgradeHeldReason, infrav1.UpgradingReason,
		infrav1.UpgradeFailedReason, infrav1.UpgradeRolledBackReason, infrav1.UpgradeNotPossibleReason,
	}
}

// RegisterMetrics registers the metric of upgrades. It has values once elected is closed, because
// only the leader keeps the conditions that it counts.
func (r *Reconciler) RegisterMetrics(registerer prometheus.Registerer, elected <-chan struct{}) error {
	if err := registerer.Register(&counter{reader: r.Client, watchFilter: r.WatchFilter, elected: elected, description: newGauge()}); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func newGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "elemental", Subsystem: "upgrade", Name: "machines",
		Help: "ElementalMachines by the reason of their condition KubernetesUpToDate. Those without the condition do not count.",
	}, []string{"reason"})
}

// counter is a prometheus.Collector that counts machines when it is scraped. So a machine that is
// deleted leaves nothing behind.
type counter struct {
	reader      client.Reader
	watchFilter string
	elected     <-chan struct{}
	description prometheus.Collector
}

// Describe is prometheus.Collector's.
func (c *counter) Describe(to chan<- *prometheus.Desc) { c.description.Describe(to) }

// Collect is prometheus.Collector's.
func (c *counter) Collect(to chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	gauge := newGauge()
	machines := &infrav1.ElementalMachineList{}
	if err := c.reader.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), fmt.Errorf("listing ElementalMachines: %w", err))
		return
	}
	counts := map[string]int{}
	for i := range machines.Items {
		m := &machines.Items[i]
		if is := meta.FindStatusCondition(m.Status.Conditions, infrav1.KubernetesUpToDateCondition); is != nil && reconcile.IsWatched(m, c.watchFilter) {
			counts[is.Reason]++
		}
	}
	for _, reason := range countedReasons() {
		gauge.WithLabelValues(reason).Set(float64(counts[reason]))
	}
	gauge.Collect(to)
}
