package selector

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// maxValue is the maximum length of a value in an explanation, in bytes, because hosts
// report values.
const maxValue = 64

// part is an operand of the outermost && of an expression.
type part struct {
	text    string
	program cel.Program
	// reads are the values of the host that the part reads, without those in loops.
	reads []read
}

// read is a value of the host, such as host.inventory.cpu.cores.
type read struct {
	text    string
	program cel.Program
}

// Field is a part of a host selector.
type Field string

// Fields of a host selector.
const (
	// Labels are matchLabels and matchExpressions.
	Labels     Field = "labels"
	Expression Field = "expression"
)

// Unmet is a requirement of a selector that a host does not meet. The zero value means that
// the host meets all.
type Unmet struct {
	// Field is blank for a selector that can't be compiled.
	Field Field
	// Message has the requirement, and what the host has instead.
	Message string
}

// Why returns the first requirement of the selector that the host does not meet. It is for
// people, and not counted against the limit on the total cost.
func (s *Selector) Why(h *infrav1.ElementalHost) Unmet {
	if s == nil {
		return Unmet{}
	}
	if s.err != nil {
		return Unmet{Message: s.err.Error()}
	}
	requirements, _ := s.labels.Requirements()
	for i := range requirements {
		r := &requirements[i]
		if r.Matches(labels.Set(h.Labels)) {
			continue
		}
		if value, ok := h.Labels[r.Key()]; ok {
			return Unmet{Labels, fmt.Sprintf("wanted label %s, the host has %s=%s", r, r.Key(), value)}
		}
		return Unmet{Labels, fmt.Sprintf("wanted label %s, the host has no label %s", r, r.Key())}
	}
	if s.expression == nil {
		return Unmet{}
	}
	if matches, _ := s.expression.matches(s.ctx, h); matches {
		return Unmet{}
	}
	return Unmet{Expression, s.whyExpression(h)}
}

func (s *Selector) whyExpression(h *infrav1.ElementalHost) string {
	for _, p := range s.expression.parts() {
		value, _, err := p.program.ContextEval(s.ctx, variables(h))
		switch {
		case err != nil:
			return fmt.Sprintf("%s can't be evaluated: %v", p.text, err)
		case value != types.True:
			return fmt.Sprintf("%s is false%s", p.text, s.values(p.reads, h))
		}
	}
	return "the expression is not true"
}

// values returns what the host has for the values that a part reads.
func (s *Selector) values(reads []read, h *infrav1.ElementalHost) string {
	var found []string
	for _, r := range reads {
		value, _, err := r.program.ContextEval(s.ctx, variables(h))
		if err != nil {
			continue
		}
		text := fmt.Sprint(value.Value())
		if _, isText := value.Value().(string); isText {
			if len(text) > maxValue {
				text = strings.ToValidUTF8(text[:maxValue], "") + "…"
			}
			text = fmt.Sprintf("%q", text)
		}
		found = append(found, fmt.Sprintf("%s is %s", r.text, text))
	}
	if len(found) == 0 {
		return ""
	}
	return "; " + strings.Join(found, ", ")
}

// parts returns the operands of the outermost && of an expression that compiles, in their
// order. What can't be written as text again is left out.
func parts(e *cel.Env, text string) []part {
	// Loops can be written again only with the calls of their macros.
	tracking, err := e.Extend(cel.EnableMacroCallTracking())
	if err != nil {
		return nil
	}
	checked, issues := tracking.Compile(text)
	if issues.Err() != nil {
		return nil
	}
	tree := checked.NativeRep()
	var found []part
	for _, operand := range conjuncts(tree.Expr()) {
		if text, program, ok := subexpression(e, tree, operand); ok {
			found = append(found, part{text: text, program: program, reads: readsOf(e, tree, operand)})
		}
	}
	return found
}

func conjuncts(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	var found []ast.Expr
	for _, operand := range e.AsCall().Args() {
		found = append(found, conjuncts(operand)...)
	}
	return found
}

// subexpression compiles a part of a compiled expression for itself.
func subexpression(e *cel.Env, tree *ast.AST, of ast.Expr) (text string, _ cel.Program, ok bool) {
	text, err := cel.ExprToString(of, tree.SourceInfo())
	if err != nil {
		return "", nil, false
	}
	checked, issues := e.Compile(text)
	if issues.Err() != nil {
		return "", nil, false
	}
	program, err := e.Program(checked, cel.CostLimit(MaxCost), cel.InterruptCheckFrequency(interruptEvery))
	return text, program, err == nil
}

// readsOf returns the numbers, texts and booleans of the host that an expression selects.
func readsOf(e *cel.Env, tree *ast.AST, of ast.Expr) []read {
	var found []read
	known := map[string]bool{}
	ast.PreOrderVisit(of, ast.NewExprVisitor(func(x ast.Expr) {
		if !isPath(x) || !isScalar(tree.GetType(x.ID())) {
			return
		}
		if text, program, ok := subexpression(e, tree, x); ok && !known[text] {
			known[text] = true
			found = append(found, read{text, program})
		}
	}))
	return found
}

// isPath reports whether the expression selects a field of host, or a label.
func isPath(x ast.Expr) bool {
	switch x.Kind() {
	case ast.SelectKind:
		operand := x.AsSelect().Operand()
		return !x.AsSelect().IsTestOnly() && (isHost(operand) || isPath(operand))
	case ast.CallKind:
		call := x.AsCall()
		return call.FunctionName() == operators.Index && call.Args()[1].Kind() == ast.LiteralKind && isPath(call.Args()[0])
	default:
		return false
	}
}

func isHost(x ast.Expr) bool { return x.Kind() == ast.IdentKind && x.AsIdent() == hostVariable }

func isScalar(t *types.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.DoubleKind, types.StringKind:
		return true
	default:
		return false
	}
}
