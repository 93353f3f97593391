// Package placement decides which host suits a request. It is pure; endpoint
// reservations and claims use it alike.
package placement

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// Request says what is looked for.
type Request struct {
	// HostName pins one host; blank: any.
	HostName string
	// Selector over the hosts' labels; nil: any.
	Selector *infrav1.HostSelector
	// FailureDomain that the host must be in, strictly; blank: any.
	FailureDomain string
	// FailureDomainLabel is the label of hosts that names their failure domain.
	FailureDomainLabel string
	// ReservedFor names the cluster whose reservation may be used; blank: none.
	ReservedFor string
}

// Reasons why a host was passed over, besides those of hoststatus.
const (
	NotMatching        = "not matching"
	WrongFailureDomain = "in another failure domain"
)

// Matches reports whether the host is of the kind asked for, whatever its
// state, and if not, why.
func (r Request) Matches(host *infrav1.ElementalHost) (why string, ok bool) {
	if r.HostName != "" && host.Name != r.HostName {
		return NotMatching, false
	}
	// CEL has checked the selector when it was admitted; what can't be parsed
	// all the same selects nothing.
	if selector, err := AsSelector(r.Selector); err != nil || !selector.Matches(labels.Set(host.Labels)) {
		return NotMatching, false
	}
	if r.FailureDomain != "" && host.Labels[r.FailureDomainLabel] != r.FailureDomain {
		return WrongFailureDomain, false
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

// AsSelector converts a host selector; nil selects everything.
func AsSelector(s *infrav1.HostSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	in := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		in.MatchExpressions = append(in.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator, Values: e.Values})
	}
	selector, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return nil, fmt.Errorf("parsing host selector: %w", err)
	}
	return selector, nil
}
