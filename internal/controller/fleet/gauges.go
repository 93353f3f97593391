package fleet

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const namespace, subsystem = "elemental", "fleet"

// gauges are the numbers of one scrape.
type gauges struct {
	hosts, unavailable, domains, registrations, machines, agents, tokens, certificates, kubeconfigs *prometheus.GaugeVec
}

func newGauges() *gauges {
	return &gauges{
		hosts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "hosts",
			Help: "ElementalHosts by state: the reason of their condition Ready, which kubectl get shows.",
		}, []string{"state"}),
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "unavailable_hosts",
			Help: "ElementalHosts that no machine can claim now, by the reason of their condition Available.",
		}, []string{"reason"}),
		domains: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "failure_domain_hosts",
			Help: "ElementalHosts by failure domain and class: unapproved, maintenance, disconnected, available, claimed, unavailable. The first 100 failure domains by name have a series of their own, the rest is other.",
		}, []string{"failure_domain", "class"}),
		registrations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "registration_hosts",
			Help: "ElementalHosts by registration (namespace/name) and class, as for failure domains. The first 100 registrations by name have a series of their own, the rest is other.",
		}, []string{"registration", "class"}),
		machines: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "machines",
			Help: "ElementalMachines by state: the reason of their condition Ready.",
		}, []string{"state"}),
		agents: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "agents",
			Help: "Approved ElementalHosts by the version of their agent. The 20 versions of most hosts have a series of their own, the rest is other.",
		}, []string{"version"}),
		tokens: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "registration_token_not_after_seconds",
			Help: "When the newest registration token of a registration (namespace/name) expires, in seconds since 1970. The first 100 registrations by name have a series of their own, other is the earliest of the rest.",
		}, []string{"registration"}),
		certificates: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "certificate_not_after_seconds",
			Help: "When the first certificate of kubeadm on the control-plane hosts of a cluster (namespace/name) ends, as the hosts report it, in seconds since 1970. The first 100 clusters by name have a series of their own, other is the earliest of the rest.",
		}, []string{"cluster"}),
		kubeconfigs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "kubeconfig_not_after_seconds",
			Help: "When the certificate in the kubeconfig of a cluster (namespace/name) ends, in seconds since 1970. The first 100 clusters by name have a series of their own, other is the earliest of the rest.",
		}, []string{"cluster"}),
	}
}

func (g *gauges) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{g.hosts, g.unavailable, g.domains, g.registrations, g.machines, g.agents, g.tokens, g.certificates, g.kubeconfigs}
}

// set sets a gauge to counts by one label.
func set(gauge *prometheus.GaugeVec, counts map[string]int, most int) {
	labels := bounded(counts, most, mostFirst(counts))
	for value, n := range counts {
		gauge.WithLabelValues(labels[value]).Add(float64(n))
	}
}

// setEarliest sets a gauge to times by name. Of names that share a value of the label the earliest
// time counts.
func setEarliest(gauge *prometheus.GaugeVec, times map[string]int64) {
	earliest := map[string]int64{}
	for name, label := range bounded(times, maxNames, byName) {
		if former, has := earliest[label]; !has || times[name] < former {
			earliest[label] = times[name]
		}
	}
	for label, at := range earliest {
		gauge.WithLabelValues(label).Set(float64(at))
	}
}

// class says what a host can be used for. Each host has one.
type class string

const (
	unapproved   class = "unapproved"
	maintained   class = "maintenance"
	disconnected class = "disconnected"
	available    class = "available"
	claimed      class = "claimed"
	unavailable  class = "unavailable"
)

// classOf returns the first class that applies.
func classOf(h *infrav1.ElementalHost) class {
	switch {
	case h.Spec.Approval != infrav1.ApprovalApproved || h.Spec.Lock != nil:
		return unapproved
	case h.InMaintenance():
		return maintained
	case !h.IsConnected():
		return disconnected
	case reason(h, infrav1.AvailableCondition) == infrav1.AvailableReason:
		return available
	case h.Spec.Claim != nil:
		return claimed
	default:
		return unavailable
	}
}

type classCounts map[class]int

// count adds a host to its class below a name.
func count(by map[string]classCounts, name string, c class) {
	if by[name] == nil {
		by[name] = classCounts{}
	}
	by[name][c]++
}

// setClasses sets a gauge to counts by name and class. Each name has all classes, so that a
// class without hosts is 0.
func setClasses(gauge *prometheus.GaugeVec, by map[string]classCounts) {
	labels := bounded(by, maxNames, byName)
	for name, counts := range by {
		for _, c := range []class{unapproved, maintained, disconnected, available, claimed, unavailable} {
			gauge.WithLabelValues(labels[name], string(c)).Add(float64(counts[c]))
		}
	}
}

// labelsOf returns the labels of hosts that the clusters take as failure domains, the default one first.
func labelsOf(clusters []infrav1.ElementalCluster) []string {
	found := []string{infrav1.DefaultFailureDomainLabel}
	for i := range clusters {
		if label := clusters[i].Spec.FailureDomains.HostLabel; label != "" && !slices.Contains(found, label) {
			found = append(found, label)
		}
	}
	slices.Sort(found[1:])
	return found
}

// failureDomain returns the host's value of the first of these labels that it has.
func failureDomain(h *infrav1.ElementalHost, labels []string) string {
	for _, label := range labels {
		if domain := h.Labels[label]; domain != "" {
			return domain
		}
	}
	return none
}
