package remediation

import (
	"fmt"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// light tells since when another host has shown that it is this host, and not its
// site, that is silent. Where none does, dark says so.
//
// Those of the same failure domain are asked first: a domain is often a site with
// one line. A host that has its domain for itself is judged by all others.
func light(s *scope) (since time.Time, dark string) {
	if domain, name := neighbours(s); len(domain) > 0 {
		if since, ok := witness(domain); ok {
			return since, ""
		}
		return time.Time{}, fmt.Sprintf("No host of the Cluster in failure domain %s is connected: the site is dark, "+
			"and nothing is remedied before one returns", name)
	}
	if since, ok := witness(s.others); ok {
		return since, ""
	}
	return time.Time{}, "No host of the Cluster is connected: the site is dark, and nothing is remedied before one returns"
}

// neighbours are the cluster's other hosts in the host's failure domain, as far as
// something follows from them.
func neighbours(s *scope) (hosts []*infrav1.ElementalHost, domain string) {
	label := infrav1.DefaultFailureDomainLabel
	if s.infraCluster != nil && s.infraCluster.Spec.FailureDomains.HostLabel != "" {
		label = s.infraCluster.Spec.FailureDomains.HostLabel
	}
	domain = s.host.Labels[label]
	if domain == "" {
		return nil, ""
	}
	for _, host := range s.others {
		if host.Labels[label] == domain && (connected(host) || expected(host)) {
			hosts = append(hosts, host)
		}
	}
	return hosts, domain
}

// expected reports whether the host's silence would say something: one that is
// given up, locked out or worked on may be silent while its site is not dark.
func expected(host *infrav1.ElementalHost) bool {
	spec := host.Spec
	return spec.Claim != nil && spec.Claim.Phase != infrav1.ClaimReleasing && spec.Fence == nil && spec.Lock == nil &&
		spec.Maintenance == nil && spec.Approval == infrav1.ApprovalApproved
}

// witness returns since when one of the hosts has been connected without a break.
func witness(hosts []*infrav1.ElementalHost) (since time.Time, found bool) {
	for _, host := range hosts {
		if !connected(host) {
			continue
		}
		if c := host.Status.Connection.Since.Time; !found || c.Before(since) {
			since, found = c, true
		}
	}
	return since, found
}
