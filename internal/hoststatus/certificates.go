package hoststatus

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// ExpiryWarning is how long before their end certificates of a year count as expiring.
	ExpiryWarning = 30 * 24 * time.Hour
	// authorityWarning is the same for authorities. To replace one takes weeks of planning.
	authorityWarning = 180 * 24 * time.Hour
)

// certificatesValid returns the verdict on the certificates that kubeadm has made on the host; none
// for a host that has not reported any.
func certificatesValid(host *infrav1.ElementalHost, now time.Time) Verdict {
	leaf, authority := firstToEnd(host.Status.Certificates)
	switch {
	case leaf == nil && authority == nil:
		return Verdict{}
	case isWithin(leaf, now, 0):
		return no(infrav1.CertificatesExpiredReason, "The certificate %s on the host ended at %s", leaf.Name, leaf.NotAfter.UTC().Format(timeFormat))
	case isWithin(authority, now, 0):
		return no(infrav1.CertificatesExpiredReason, "The authority %s on the host ended at %s", authority.Name, authority.NotAfter.UTC().Format(timeFormat))
	case isWithin(leaf, now, ExpiryWarning):
		return no(infrav1.CertificatesExpiringReason, "The certificate %s on the host ends at %s", leaf.Name, leaf.NotAfter.UTC().Format(timeFormat))
	case isWithin(authority, now, authorityWarning):
		return no(infrav1.AuthorityExpiringReason, "The authority %s on the host ends at %s, and a renewal does not renew it",
			authority.Name, authority.NotAfter.UTC().Format(timeFormat))
	default:
		return yes(infrav1.CertificatesValidReason)
	}
}

// CertificatesEnd returns when the first certificate of the host ends that kubeadm can renew; zero
// if the host has reported none.
func CertificatesEnd(host *infrav1.ElementalHost) metav1.Time {
	if leaf, _ := firstToEnd(host.Status.Certificates); leaf != nil {
		return leaf.NotAfter
	}
	return metav1.Time{}
}

// CertificatesChange returns when the condition CertificatesValid may be another one if the host
// reports nothing new; zero if never.
func CertificatesChange(host *infrav1.ElementalHost, now time.Time) (at time.Time) {
	leaf, authority := firstToEnd(host.Status.Certificates)
	consider := func(c *infrav1.HostCertificate, before time.Duration) {
		if c == nil {
			return
		}
		if change := c.NotAfter.Add(-before); change.After(now) && (at.IsZero() || change.Before(at)) {
			at = change
		}
	}
	consider(leaf, 0)
	consider(leaf, ExpiryWarning)
	consider(authority, 0)
	consider(authority, authorityWarning)
	return at
}

// firstToEnd returns the certificates that end first; nil without one.
func firstToEnd(all []infrav1.HostCertificate) (leaf, authority *infrav1.HostCertificate) {
	for i := range all {
		first := &leaf
		if protocol.IsAuthority(all[i].Name) {
			first = &authority
		}
		if *first == nil || all[i].NotAfter.Before(&(*first).NotAfter) {
			*first = &all[i]
		}
	}
	return leaf, authority
}

// isWithin reports whether a certificate ends within d; false without a certificate.
func isWithin(c *infrav1.HostCertificate, now time.Time, d time.Duration) bool {
	return c != nil && !c.NotAfter.After(now.Add(d))
}
