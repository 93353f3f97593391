package selector

import (
	"context"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Outcome is what a Selector says of a host.
type Outcome int

// Outcomes.
const (
	// NotSelected: the host is of another kind, or the expression can't be
	// evaluated for it, for example because it lacks a label that is read.
	NotSelected Outcome = iota
	// InventoryUnknown: the expression reads the inventory, which the host has not
	// yet reported.
	InventoryUnknown
	// NotJudged: evaluations by this Selector have cost MaxTotalCost already.
	NotJudged
	// Selected: the host is of the kind asked for.
	Selected
)

// Selector is a compiled host selector, made anew for each decision. A nil
// Selector selects every host. Several goroutines may use it.
type Selector struct {
	labels     labels.Selector
	expression *expression
	err        error
	// ctx ends evaluations that are under way when the reconcile ends that the
	// selector was made for.
	ctx context.Context
	// spent is what evaluations have cost.
	spent atomic.Uint64
}

// Compile compiles a host selector of the API; nil selects every host. It never
// fails: what can't be compiled selects nothing, and Err says why. Evaluations
// end with ctx.
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

// Again returns the selector for a further decision: evaluations end with ctx, and none
// has cost anything.
func (s *Selector) Again(ctx context.Context) *Selector {
	if s == nil {
		return nil
	}
	return &Selector{labels: s.labels, expression: s.expression, err: s.err, ctx: ctx}
}

// Err says why the selector selects nothing at all; nil if it may.
func (s *Selector) Err() error {
	if s == nil {
		return nil
	}
	return s.err
}

// Required returns labels that every selected host has, with their values. There
// may be more that it must have.
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

// Select judges a host, which is not changed.
func (s *Selector) Select(h *infrav1.ElementalHost) Outcome {
	switch {
	case s == nil:
		return Selected
	case s.err != nil || !s.labels.Matches(labels.Set(h.Labels)):
		return NotSelected
	case s.expression == nil:
		return Selected
	case s.expression.readsInventory && h.Status.Inventory == nil:
		// Else zero would do for a small number, and none for "no such disk".
		return InventoryUnknown
	case s.spent.Load() > MaxTotalCost:
		return NotJudged
	}
	holds, cost := s.expression.holds(s.ctx, h)
	s.spent.Add(cost)
	if !holds {
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
