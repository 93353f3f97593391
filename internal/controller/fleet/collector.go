package fleet

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// listTimeout bounds the lists of a scrape. They are read from the cache.
const listTimeout = 5 * time.Second

// collector is a prometheus.Collector that counts hosts, machines and tokens when it is scraped.
type collector struct {
	reader      client.Reader
	watchFilter string
	elected     <-chan struct{}
	description *gauges
}

// Describe is prometheus.Collector's.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, g := range c.description.all() {
		g.Describe(to)
	}
}

// Collect is prometheus.Collector's.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	if !isElected(c.elected) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	g := newGauges()
	for _, count := range []func(context.Context, *gauges) error{c.countHosts, c.countMachines, c.readTokens, c.readKubeconfigs} {
		if err := count(ctx, g); err != nil {
			to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
			return
		}
	}
	for _, gauge := range g.all() {
		gauge.Collect(to)
	}
}

func (c *collector) countHosts(ctx context.Context, g *gauges) error {
	hosts := &infrav1.ElementalHostList{}
	if err := c.reader.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ElementalHosts: %w", err)
	}
	domainLabels, err := c.failureDomainLabels(ctx)
	if err != nil {
		return err
	}
	// A fleet without hosts has a series too: none at all means that no manager leads.
	states := map[string]int{infrav1.AvailableReason: 0, infrav1.ProvisionedReason: 0}
	unavailable, versions := map[string]int{}, map[string]int{}
	domains, registrations, ends := map[string]classCounts{}, map[string]classCounts{}, map[string]int64{}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if !reconcile.IsWatched(h, c.watchFilter) || h.IsHandedOver() {
			continue // a granted host counts where it is
		}
		states[reason(h, infrav1.ReadyCondition)]++
		if !meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.AvailableCondition) {
			unavailable[reason(h, infrav1.AvailableCondition)]++
		}
		if h.Spec.Approval == infrav1.ApprovalApproved && h.Status.Agent != nil {
			versions[cmp.Or(h.Status.Agent.Version, none)]++
		}
		class := classOf(h)
		count(domains, failureDomain(h, domainLabels), class)
		count(registrations, registration(h), class)
		if at := hoststatus.CertificatesEnd(h); !at.IsZero() && h.Spec.Claim != nil {
			name := h.Namespace + "/" + h.Spec.Claim.ClusterName
			if former, has := ends[name]; !has || at.Unix() < former {
				ends[name] = at.Unix()
			}
		}
	}
	set(g.hosts, states, maxStates)
	set(g.unavailable, unavailable, maxStates)
	set(g.agents, versions, maxVersions)
	setClasses(g.domains, domains)
	setClasses(g.registrations, registrations)
	setEarliest(g.certificates, ends)
	return nil
}

func (c *collector) countMachines(ctx context.Context, g *gauges) error {
	machines := &infrav1.ElementalMachineList{}
	if err := c.reader.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ElementalMachines: %w", err)
	}
	states := map[string]int{}
	for i := range machines.Items {
		if m := &machines.Items[i]; reconcile.IsWatched(m, c.watchFilter) {
			states[reason(m, infrav1.ReadyCondition)]++
		}
	}
	set(g.machines, states, maxStates)
	return nil
}

// readTokens sets when tokens expire.
func (c *collector) readTokens(ctx context.Context, g *gauges) error {
	list := &infrav1.ElementalRegistrationList{}
	if err := c.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ElementalRegistrations: %w", err)
	}
	expiry := map[string]int64{}
	for i := range list.Items {
		r := &list.Items[i]
		if at := r.Status.TokenExpiresAt; reconcile.IsWatched(r, c.watchFilter) && !at.IsZero() {
			expiry[klog.KObj(r).String()] = at.Unix()
		}
	}
	setEarliest(g.tokens, expiry)
	return nil
}

// readKubeconfigs sets when certificates in kubeconfigs end.
func (c *collector) readKubeconfigs(ctx context.Context, g *gauges) error {
	list := &infrav1.ElementalClusterList{}
	if err := c.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ElementalClusters: %w", err)
	}
	ends := map[string]int64{}
	for i := range list.Items {
		infra := &list.Items[i]
		name := infra.Labels[clusterv1.ClusterNameLabel]
		if at := infra.Status.KubeconfigNotAfter; reconcile.IsWatched(infra, c.watchFilter) && name != "" && !at.IsZero() {
			ends[infra.Namespace+"/"+name] = at.Unix()
		}
	}
	setEarliest(g.kubeconfigs, ends)
	return nil
}

// failureDomainLabels returns the labels of hosts that name failure domains: that of all clusters
// which choose none, and those of the others in a fixed order.
func (c *collector) failureDomainLabels(ctx context.Context) ([]string, error) {
	clusters := &infrav1.ElementalClusterList{}
	if err := c.reader.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ElementalClusters: %w", err)
	}
	return labelsOf(clusters.Items), nil
}

// reason returns the reason of a condition; none without the condition.
func reason(of interface{ GetConditions() []metav1.Condition }, conditionType string) string {
	if c := meta.FindStatusCondition(of.GetConditions(), conditionType); c != nil && c.Reason != "" {
		return c.Reason
	}
	return none
}

// registration returns the namespace and name of the host's registration.
func registration(h *infrav1.ElementalHost) string {
	if ref := h.Spec.RegistrationRef; ref != nil {
		return h.Namespace + "/" + ref.Name
	}
	return none
}

func isElected(elected <-chan struct{}) bool {
	select {
	case <-elected:
		return true
	default:
		return false
	}
}
