// Package placement decides which host a machine or a control plane endpoint gets.
// It remembers which hosts are free (Candidates) and which are about to be claimed
// (Nominations). The reconcilers of ElementalMachines, ElementalClusters and
// ElementalMachineTemplates use it. It does no I/O: callers read hosts and write
// claims.
package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Feasible reports whether a host can do what its role needs, such as carry a
// virtual IP address. If not, reason completes the phrase "3 hosts ...".
type Feasible func(host *infrav1.ElementalHost) (reason string, ok bool)

// Constraints are the conditions that a host must meet.
type Constraints struct {
	// HostName pins one host; blank allows any.
	HostName string
	// Selector selects hosts by labels and inventory; nil allows any.
	Selector *selector.Selector
	// OSImage requires a host that runs an image of Elemental OS, whichever.
	OSImage bool
	// FailureDomain that the host must be in; blank allows any.
	FailureDomain string
	// FailureDomainLabel is the host label that names a host's failure domain.
	FailureDomainLabel string
	// ReservedFor names the cluster whose reserved hosts may be used; blank for none.
	ReservedFor string
	// Feasible checks the host further; nil accepts any.
	Feasible Feasible
	// Adoption says which running Nodes the machine may take over; nil for none.
	Adoption *Adoption
	// Preflight is what kubeadm needs of the host; nil for machines that kubeadm does not
	// bootstrap.
	Preflight *preflight.Need
}

// WithContext returns the constraints for a new decision. Evaluations of the
// selector end with ctx, and their cost counts from zero.
func (c Constraints) WithContext(ctx context.Context) Constraints {
	c.Selector = c.Selector.WithContext(ctx)
	return c
}

// Reasons why a host is not used. Others are those of hoststatus and Feasible.
const (
	NotMatching        = "not matching"
	InventoryUnknown   = "with unknown inventory"
	NotEvaluated       = "not looked at, because the selector's expression is too expensive for so many hosts"
	WrongFailureDomain = "in another failure domain"
	NoOSImage          = "without an image of Elemental OS"
)

// Matches reports whether the host is admitted and meets the constraints, whether it
// is free or not. If not, it returns the reason.
//
// A host that is not admitted is not evaluated: strangers could otherwise use up the
// cost limit of the selector, so that other hosts are not evaluated.
func (c Constraints) Matches(host *infrav1.ElementalHost) (reason string, ok bool) {
	if c.HostName != "" && host.Name != c.HostName {
		return NotMatching, false
	}
	if admitted := hoststatus.Admitted(host); !admitted.IsTrue() {
		return admitted.Reason(), false
	}
	if reason, ok := c.Adoption.matches(host); !ok {
		return reason, false
	}
	switch c.Selector.Select(host) {
	case selector.Selected:
	case selector.InventoryUnknown:
		return InventoryUnknown, false
	case selector.NotEvaluated:
		return NotEvaluated, false
	default:
		return NotMatching, false
	}
	if c.OSImage && (host.Status.Inventory == nil || host.Status.Inventory.OS.Image == "") {
		return NoOSImage, false
	}
	if c.FailureDomain != "" && host.Labels[c.FailureDomainLabel] != c.FailureDomain {
		return WrongFailureDomain, false
	}
	if c.Feasible != nil {
		if reason, ok := c.Feasible(host); !ok {
			return reason, false
		}
	}
	if len(c.findings(host)) > 0 {
		return infrav1.NotPreparedReason, false
	}
	return "", true
}

// findings returns what keeps kubeadm from working on the host.
func (c Constraints) findings(host *infrav1.ElementalHost) []preflight.Finding {
	if c.Preflight == nil {
		return nil
	}
	return preflight.Blocking(preflight.Findings(host, *c.Preflight))
}

// Available reports whether the host meets the constraints and can be claimed or
// reserved now. If not, it returns the reason.
func (c Constraints) Available(host *infrav1.ElementalHost) (reason string, ok bool) {
	if reason, ok := c.Matches(host); !ok {
		return reason, false
	}
	if verdict := c.verdict(host); !verdict.IsTrue() {
		return verdict.Reason(), false
	}
	return "", true
}

// verdict returns whether the host can be claimed or reserved now, whatever the other
// constraints are.
func (c Constraints) verdict(host *infrav1.ElementalHost) hoststatus.Verdict {
	if c.isReserved(host) {
		return hoststatus.Usable(host)
	}
	return hoststatus.Available(host)
}

// Pick returns the best available host, or nil. A host that is reserved for the
// cluster comes first, because its address is the cluster's endpoint, then those with a
// Node to take over. All other hosts are ordered by name.
func (c Constraints) Pick(hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	var best *infrav1.ElementalHost
	for _, host := range hosts {
		if _, ok := c.Available(host); !ok {
			continue
		}
		if best == nil || c.less(host, best) {
			best = host
		}
	}
	return best
}

func (c Constraints) isReserved(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return c.ReservedFor != "" && claim != nil && claim.Phase == infrav1.ClaimReserved && claim.ClusterName == c.ReservedFor
}

func (c Constraints) less(a, b *infrav1.ElementalHost) bool {
	if x, y := c.isReserved(a), c.isReserved(b); x != y {
		return x
	}
	if x, y := a.IsAdoptable(), b.IsAdoptable(); x != y {
		return x
	}
	return a.Name < b.Name
}

// Explain returns the message for users when no host is available: the number of
// hosts for each reason. The order of hosts does not change the text.
func (c Constraints) Explain(hosts []*infrav1.ElementalHost) string {
	if err := c.Selector.Err(); err != nil {
		return fmt.Sprintf("No host can be selected: %v; make another template or machine", err)
	}
	if len(hosts) == 0 {
		return "There are no ElementalHosts in this namespace; enrol hosts by an ElementalRegistration"
	}
	counts := map[string]int{}
	for _, host := range hosts {
		if reason, ok := c.Available(host); !ok {
			counts[reason]++
		}
	}
	reasons := make([]string, 0, len(counts))
	for reason := range counts {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	parts := make([]string, len(reasons))
	for i, reason := range reasons {
		parts[i] = fmt.Sprintf("%d %s", counts[reason], reason)
	}
	return fmt.Sprintf("None of %d hosts can be used: %s", len(hosts), strings.Join(parts, ", "))
}
