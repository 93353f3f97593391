package selector

import (
	"context"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Outcome is the result of a Selector for a host.
type Outcome int

// Outcomes.
const (
	// NotSelected: the host does not match, or the expression fails for it, for example
	// because it reads a label that the host does not have.
	NotSelected Outcome = iota
	// InventoryUnknown: the expression reads the inventory, and the host has not reported
	// it yet.
	InventoryUnknown
	// NotEvaluated: the evaluations by this Selector have reached MaxTotalCost.
	NotEvaluated
	// Selected: the host matches.
	Selected
)

// Selector is a compiled host selector for one decision. A nil Selector selects every
// host. Several goroutines may use it.
type Selector struct {
	labels     labels.Selector
	expression *expression
	err        error
	// ctx ends running evaluations when the reconcile ends.
	ctx context.Context
	// spent is the cost of all evaluations.
	spent atomic.Uint64
}

// Compile compiles a host selector of the API; nil selects every host. A selector that
// can't be compiled selects nothing, and Err returns the error. Evaluations end with ctx.
func (c *Compiler) Compile(ctx context.Context, spec *infrav1.HostSelector) *Selector {
	s := &Selector{labels: labels.Everything(), ctx: ctx}
	if spec == nil {
		return s
	}
	if s.labels, s.err = labelSelector(spec); s.err != nil || spec.Expression == "" {
		return s
	}
	if s.expression, s.err = c.compiled(spec.Expression); s.err != nil {
		s.err = fmt.Errorf("compiling hostSelector.expression: %w", s.err)
	}
	return s
}

// WithContext returns the selector for a new decision. Evaluations end with ctx, and
// their cost counts from zero.
func (s *Selector) WithContext(ctx context.Context) *Selector {
	if s == nil {
		return nil
	}
	return &Selector{labels: s.labels, expression: s.expression, err: s.err, ctx: ctx}
}

// Err returns why the selector could not be compiled, or nil.
func (s *Selector) Err() error {
	if s == nil {
		return nil
	}
	return s.err
}

// Required returns labels, with their values, that every selected host has. The selector
// may have further requirements.
func (s *Selector) Required() map[string]string {
	if s == nil || s.err != nil {
		return nil
	}
	requirements, _ := s.labels.Requirements()
	required := make(map[string]string, len(requirements))
	for i := range requirements {
		if value, ok := s.labels.RequiresExactMatch(requirements[i].Key()); ok {
			required[requirements[i].Key()] = value
		}
	}
	return required
}

// Select evaluates the selector for the host. It does not change the host.
func (s *Selector) Select(h *infrav1.ElementalHost) Outcome {
	switch {
	case s == nil:
		return Selected
	case s.err != nil || !s.labels.Matches(labels.Set(h.Labels)):
		return NotSelected
	case s.expression == nil:
		return Selected
	case s.expression.readsInventory && h.Status.Inventory == nil:
		// Otherwise an unknown number would count as zero, and unknown disks as none.
		return InventoryUnknown
	case s.spent.Load() > MaxTotalCost:
		return NotEvaluated
	}
	matches, cost := s.expression.matches(s.ctx, h)
	s.spent.Add(cost)
	if !matches {
		return NotSelected
	}
	return Selected
}

func labelSelector(s *infrav1.HostSelector) (labels.Selector, error) {
	in := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		in.MatchExpressions = append(in.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator, Values: e.Values})
	}
	selector, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return nil, fmt.Errorf("parsing the labels of hostSelector: %w", err)
	}
	return selector, nil
}
