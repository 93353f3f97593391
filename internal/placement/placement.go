// Package placement decides which host suits a request, and remembers which hosts
// may be had and which are about to be taken. It does no I/O; endpoint reservations
// and claims use it alike.
package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Request says what is looked for.
type Request struct {
	// HostName pins one host; blank: any.
	HostName string
	// Selector over the hosts' labels and inventory; nil: any.
	Selector *selector.Selector
	// FailureDomain that the host must be in, strictly; blank: any.
	FailureDomain string
	// FailureDomainLabel is the label of hosts that names their failure domain.
	FailureDomainLabel string
	// ReservedFor names the cluster whose reservation may be used; blank: none.
	ReservedFor string
	// Able says whether a host can do what its machine will ask of it beside that,
	// and if not, why, in words that follow a number of hosts; nil: any can.
	Able func(*infrav1.ElementalHost) (why string, ok bool)
}

// Again returns the request for a further decision, which ends with ctx.
func (r Request) Again(ctx context.Context) Request {
	r.Selector = r.Selector.Again(ctx)
	return r
}

// Reasons why a host was passed over, besides those of hoststatus.
const (
	NotMatching        = "not matching"
	InventoryUnknown   = "with unknown inventory"
	NotJudged          = "not looked at, because the selector's expression is too dear for so many hosts"
	WrongFailureDomain = "in another failure domain"
)

// Matches reports whether the host is of the kind asked for, whatever its
// state, and if not, why.
func (r Request) Matches(host *infrav1.ElementalHost) (why string, ok bool) {
	if r.HostName != "" && host.Name != r.HostName {
		return NotMatching, false
	}
	switch r.Selector.Select(host) {
	case selector.Selected:
	case selector.InventoryUnknown:
		return InventoryUnknown, false
	case selector.NotJudged:
		return NotJudged, false
	default:
		return NotMatching, false
	}
	if r.FailureDomain != "" && host.Labels[r.FailureDomainLabel] != r.FailureDomain {
		return WrongFailureDomain, false
	}
	if r.Able != nil {
		return r.Able(host)
	}
	return "", true
}

// Pick returns the suitable host that is first in order, or nil. A host
// reserved for the request's cluster goes before all others, because the
// cluster's endpoint is its address; the others are ordered by name.
func (r Request) Pick(hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	var best *infrav1.ElementalHost
	for _, host := range hosts {
		if _, ok := r.Suits(host); !ok {
			continue
		}
		if best == nil || r.less(host, best) {
			best = host
		}
	}
	return best
}

// Suits reports whether the host can be taken right now, and if not, why.
func (r Request) Suits(host *infrav1.ElementalHost) (why string, ok bool) {
	if why, ok := r.Matches(host); !ok {
		return why, false
	}
	verdict := hoststatus.Available(host)
	if r.reserved(host) {
		verdict = hoststatus.Usable(host)
	}
	if !verdict.IsTrue() {
		return verdict.Reason(), false
	}
	return "", true
}

func (r Request) reserved(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return r.ReservedFor != "" && claim != nil && claim.Phase == infrav1.ClaimReserved && claim.ClusterName == r.ReservedFor
}

func (r Request) less(a, b *infrav1.ElementalHost) bool {
	if x, y := r.reserved(a), r.reserved(b); x != y {
		return x
	}
	return a.Name < b.Name
}

// Explain says why none of the hosts suits: how many were looked at and what
// kept each group out. The text is the same for the same set of reasons and
// counts, whatever the order of hosts.
func (r Request) Explain(hosts []*infrav1.ElementalHost) string {
	if err := r.Selector.Err(); err != nil {
		return fmt.Sprintf("No host can be selected: %v; make another template or machine", err)
	}
	if len(hosts) == 0 {
		return "There are no ElementalHosts in this namespace; enrol hosts by an ElementalRegistration"
	}
	counts := map[string]int{}
	for _, host := range hosts {
		if why, ok := r.Suits(host); !ok {
			counts[why]++
		}
	}
	reasons := make([]string, 0, len(counts))
	for why := range counts {
		reasons = append(reasons, why)
	}
	slices.Sort(reasons)
	parts := make([]string, len(reasons))
	for i, why := range reasons {
		parts[i] = fmt.Sprintf("%d %s", counts[why], why)
	}
	return fmt.Sprintf("None of %d hosts can be used: %s", len(hosts), strings.Join(parts, ", "))
}
