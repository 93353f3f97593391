package failover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

// candidate is a control-plane host that the endpoint may move to.
type candidate struct {
	member  Member
	address string
}

// exclusion says why the endpoint can't move to a control-plane host.
type exclusion struct {
	host, reason string
	// temporary: the host may become a candidate later and stays in the cluster, so that
	// the deletion of the endpoint's Machine waits for it.
	temporary bool
}

// Candidate is a control-plane host other than the endpoint host, for people who ask where the
// endpoint can move.
type Candidate struct {
	Host string
	// Address that the endpoint would have on the host; blank if it can't move there.
	Address string
	// Obstacle says why it can't move there.
	Obstacle string
}

// Candidates returns the hosts that the endpoint may move to, the best first, and then those
// that it can't move to.
func Candidates(c Cluster) []Candidate {
	found, excluded := candidates(c)
	all := make([]Candidate, 0, len(found)+len(excluded))
	for _, f := range found {
		all = append(all, Candidate{Host: f.member.Host.Name, Address: f.address})
	}
	for _, e := range excluded {
		all = append(all, Candidate{Host: e.host, Obstacle: e.reason})
	}
	return all
}

// candidates returns the hosts that the endpoint may move to, the best first, and why
// it can't move to the others. The endpoint's own host is in neither list.
func candidates(c Cluster) (found []candidate, excluded []exclusion) {
	for _, m := range c.Members {
		if m.Host.Name == c.endpointHostName() || !m.isControlPlane() {
			continue
		}
		addr, e := checkCandidate(c, m)
		if e != nil {
			excluded = append(excluded, *e)
			continue
		}
		found = append(found, candidate{m, addr})
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(updateRank(a.member.Machine), updateRank(b.member.Machine)),
			b.member.Machine.CreationTimestamp.Compare(a.member.Machine.CreationTimestamp.Time),
			cmp.Compare(a.member.Host.Name, b.member.Host.Name),
		)
	})
	return found, excluded
}

// updateRank sorts machines that are about to be replaced last.
func updateRank(m *clusterv1.Machine) int {
	if meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineUpToDateCondition) {
		return 0
	}
	return 1
}

// checkCandidate returns the address that the endpoint would have on the host, or why
// it can't move there.
func checkCandidate(c Cluster, m Member) (string, *exclusion) {
	no := func(temporary bool, format string, args ...any) (string, *exclusion) {
		return "", &exclusion{host: m.Host.Name, reason: fmt.Sprintf(format, args...), temporary: temporary}
	}
	spec := m.Host.Spec
	switch {
	case m.Machine == nil:
		return no(false, "its Machine %s is not there", spec.Claim.MachineName)
	case m.isLeaving():
		return no(false, "its Machine is being deleted")
	case !m.isTrusted():
		return no(false, "it is fenced, locked or not approved")
	case m.Host.InMaintenance():
		return no(true, "it is in maintenance")
	case spec.Quarantine != nil:
		return no(true, "it is in quarantine")
	case !m.Host.IsBootstrapped():
		return no(true, "it is not bootstrapped")
	case !m.isConnected():
		return no(true, "its agent is not connected")
	case !c.answers(m):
		return no(true, "its agent does not answer")
	case m.apiServer() == "":
		return no(true, "it has not said yet whether its API server answers")
	case m.apiServer() != infrav1.ProbeReachable:
		return no(true, "its API server does not answer")
	case m.report().Probe == nil || m.report().Probe.Endpoint != c.Endpoint():
		// A former endpoint's host may still have its report of that time, which would
		// count as new. The agent API replaces it with the next report.
		return no(true, "it has not tried the endpoint yet")
	}
	addr, why := address.ForEndpoint(m.Host, c.policy())
	if why != "" {
		return no(false, "it is %s", why)
	}
	if !address.Covers(m.report().APIServer.CertificateNames, addr) {
		return no(false, "the serving certificate of its API server does not cover %s (%s)", addr, infrav1.AddressNotCoveredReason)
	}
	return addr, nil
}

// explain says why there is no candidate.
func explain(excluded []exclusion) string {
	if len(excluded) == 0 {
		return "the cluster has no other control-plane host"
	}
	parts := make([]string, 0, len(excluded))
	for _, e := range excluded {
		parts = append(parts, e.host+": "+e.reason)
	}
	return JoinFirst(parts, "; ")
}

// anyTemporary reports whether one of the hosts may become a candidate later.
func anyTemporary(excluded []exclusion) bool {
	return slices.ContainsFunc(excluded, func(e exclusion) bool { return e.temporary })
}

// maxNames is how many hosts a message names.
const maxNames = 5

// JoinFirst joins the first few parts and says how many more there are, so that the
// message of a condition stays readable.
func JoinFirst(parts []string, separator string) string {
	if more := len(parts) - maxNames; more > 0 {
		return fmt.Sprintf("%s%sand %d more", strings.Join(parts[:maxNames], separator), separator, more)
	}
	return strings.Join(parts, separator)
}
