package remediation

import (
	"fmt"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// siteOnlineSince returns since when another host of the site has been connected. Such
// a witness shows that the silent host has failed, and not its network. If there is no
// witness the site is offline, and offline is the message for users.
//
// The hosts of the same failure domain are the witnesses, because a failure domain is
// often a site with one network link. A host that is alone in its failure domain has
// all other hosts of the cluster as witnesses.
func siteOnlineSince(s *scope) (since time.Time, offline string) {
	if hosts, domain := domainHosts(s); len(hosts) > 0 {
		if since, ok := reconcile.ConnectedSince(hosts); ok {
			return since, ""
		}
		return time.Time{}, fmt.Sprintf("No host of the Cluster in failure domain %s is connected: the site is dark, "+
			"and nothing is remedied before one returns", domain)
	}
	if since, ok := reconcile.ConnectedSince(s.others); ok {
		return since, ""
	}
	return time.Time{}, "No host of the Cluster is connected: the site is dark, and nothing is remedied before one returns"
}

// domainHosts returns the cluster's other hosts in the host's failure domain, without
// those whose silence has another reason.
func domainHosts(s *scope) (hosts []*infrav1.ElementalHost, domain string) {
	label := placement.FailureDomainLabel(s.infraCluster)
	domain = s.host.Labels[label]
	if domain == "" {
		return nil, ""
	}
	for _, host := range s.others {
		if host.Labels[label] == domain && (host.IsConnected() || isExpected(host)) {
			hosts = append(hosts, host)
		}
	}
	return hosts, domain
}

// isExpected reports whether the host should be connected while its site is online. A
// host that is fenced, locked, in maintenance, not approved or being released may be
// silent for that reason.
func isExpected(host *infrav1.ElementalHost) bool {
	spec := host.Spec
	return spec.Claim != nil && spec.Claim.Phase != infrav1.ClaimReleasing && spec.Fence == nil && spec.Lock == nil &&
		!host.InMaintenance() && spec.Approval == infrav1.ApprovalApproved
}
