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

// candidate is a control-plane host that the endpoint may go to.
type candidate struct {
	member  Member
	address string
}

// passed is a host that it may not go to.
type passed struct {
	name, why string
	// forNow: it may become one by itself.
	forNow bool
}

// candidates returns the hosts that the endpoint may go to, the best first, and
// why it can't go to the others. The endpoint's own host is neither.
func candidates(c Cluster) (fit []candidate, unfit []passed) {
	for _, m := range c.Members {
		if m.Host.Name == c.holderName() || !m.isControlPlane() {
			continue
		}
		addr, p := judge(c, m)
		if p.why != "" {
			unfit = append(unfit, p)
			continue
		}
		fit = append(fit, candidate{m, addr})
	}
	slices.SortStableFunc(fit, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(outdated(a.member.Machine), outdated(b.member.Machine)),
			b.member.Machine.CreationTimestamp.Compare(a.member.Machine.CreationTimestamp.Time),
			cmp.Compare(a.member.Host.Name, b.member.Host.Name),
		)
	})
	return fit, unfit
}

// outdated puts machines that are about to be replaced last.
func outdated(m *clusterv1.Machine) int {
	if meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineUpToDateCondition) {
		return 0
	}
	return 1
}

// judge returns the address that the endpoint would have on the host, or why it
// can't go there.
func judge(c Cluster, m Member) (string, passed) {
	no := func(forNow bool, format string, args ...any) (string, passed) {
		return "", passed{name: m.Host.Name, why: fmt.Sprintf(format, args...), forNow: forNow}
	}
	spec := m.Host.Spec
	switch {
	case m.Machine == nil:
		return no(false, "its Machine %s is not there", spec.Claim.MachineName)
	case m.isLeaving():
		return no(false, "its Machine is being deleted")
	case !m.isTrusted():
		return no(false, "it is fenced, locked or not approved")
	case spec.Maintenance != nil:
		return no(false, "it is in maintenance")
	case spec.Quarantine != nil:
		return no(false, "it is in quarantine")
	case !m.isNode():
		return no(true, "it is not bootstrapped")
	case !m.isConnected():
		return no(true, "its agent is not connected")
	case m.apiServer() == "":
		return no(true, "it has not said yet whether its API server answers")
	case m.apiServer() != infrav1.ProbeReachable:
		return no(true, "its API server does not answer")
	case m.says().Probe == nil || m.says().Probe.Endpoint != c.Endpoint():
		// It may have been the endpoint before, and what it said of that would be taken
		// for what it does now: the agent API drops it with the first report since.
		return no(true, "it has not tried the endpoint yet")
	}
	addr, why := address.OfPolicy(m.Host, c.policy())
	if why != "" {
		return no(false, "it is %s", why)
	}
	if !address.Covers(m.says().APIServer.CertificateNames, addr) {
		return no(false, "the serving certificate of its API server does not cover %s (%s)", addr, infrav1.AddressNotCoveredReason)
	}
	return addr, passed{}
}

// explain says why there is no candidate.
func explain(unfit []passed) string {
	if len(unfit) == 0 {
		return "the cluster has no other control-plane host"
	}
	parts := make([]string, 0, len(unfit))
	for _, p := range unfit {
		parts = append(parts, p.name+": "+p.why)
	}
	return AtMost(parts, "; ")
}

// mayChange reports whether one of them may become a candidate by itself.
func mayChange(unfit []passed) bool {
	return slices.ContainsFunc(unfit, func(p passed) bool { return p.forNow })
}

// named is how many hosts a message names.
const named = 5

// AtMost joins the first few and says how many more there are: a condition's
// message is for people.
func AtMost(parts []string, separator string) string {
	if more := len(parts) - named; more > 0 {
		return fmt.Sprintf("%s%sand %d more", strings.Join(parts[:named], separator), separator, more)
	}
	return strings.Join(parts, separator)
}
