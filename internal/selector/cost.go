package selector

import (
	"fmt"
	"regexp/syntax"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

const (
	matchesFunction = "matches"

	// Maximum sizes of the values in expressions. For the inventory they are the limits of
	// the API and the agent API. Labels are bounded only by the size of an object, so that
	// an expression over more labels may exceed its cost limit while it runs.
	maxItems  = 64
	maxLabels = 64
	maxText   = 256

	// maxPattern is the maximum length of a regular expression. It bounds the cost of
	// compiling it: at most 36 counted repetitions of 1000.
	maxPattern = 256
	// maxStates bounds the work of a regular expression for each character.
	maxStates = 200
	// stateCost is the cost of one state for one character, in CEL's units.
	stateCost = 0.1
)

// restrictions rejects what the options of the language can't.
type restrictions struct{}

var _ cel.ASTValidator = restrictions{}

// Name implements cel.ASTValidator.
func (restrictions) Name() string { return "elemental.restrictions" }

// Validate implements cel.ASTValidator.
func (restrictions) Validate(_ *cel.Env, _ cel.ValidatorConfig, tree *ast.AST, issues *cel.Issues) {
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.StructKind:
			issues.ReportErrorAtID(e.ID(), "objects can't be made here")
		case ast.CallKind:
			if e.AsCall().FunctionName() != matchesFunction {
				return
			}
			pattern, ok := patternOf(e.AsCall())
			if !ok {
				issues.ReportErrorAtID(e.ID(), "the regular expression of matches must be a literal")
			} else if _, err := states(pattern); err != nil {
				issues.ReportErrorAtID(e.ID(), "%v", err)
			}
		default:
		}
	}))
}

// patternOf returns the regular expression in a call of matches: the last argument.
func patternOf(call ast.CallExpr) (string, bool) {
	args := call.Args()
	if len(args) == 0 || args[len(args)-1].Kind() != ast.LiteralKind {
		return "", false
	}
	pattern, ok := args[len(args)-1].AsLiteral().(types.String)
	return string(pattern), ok
}

// states returns the number of instructions of a compiled regular expression. Each of them
// may run for each character.
func states(pattern string) (uint64, error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf("the regular expression is longer than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("parsing the regular expression: %w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, fmt.Errorf("compiling the regular expression: %w", err)
	}
	if n := len(program.Inst); n > maxStates {
		return 0, fmt.Errorf("the regular expression has %d states, more than %d; repeat less", n, maxStates)
	}
	return uint64(len(program.Inst)), nil
}

// patterns returns the number of states of all regular expressions in the tree.
func patterns(tree *ast.AST) map[string]uint64 {
	found := map[string]uint64{}
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != matchesFunction {
			return
		}
		if pattern, ok := patternOf(e.AsCall()); ok {
			if n, err := states(pattern); err == nil {
				found[pattern] = n
			}
		}
	}))
	return found
}

// costs estimates the cost of calls before an evaluation and counts it during one. Where it
// returns nil, CEL's own figures apply.
type costs struct {
	// patterns are the numbers of states by regular expression.
	patterns map[string]uint64
}

var (
	_ checker.CostEstimator           = costs{}
	_ interpreter.ActualCostEstimator = costs{}
)

// EstimateSize implements checker.CostEstimator. It returns the maximum size of a value.
func (costs) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	most := func(n uint64) *checker.SizeEstimate { return &checker.SizeEstimate{Max: n} }
	switch node.Type().Kind() {
	case types.StringKind:
		// No function of the language subset makes strings longer.
		return most(maxText)
	case types.MapKind:
		return most(maxLabels)
	case types.ListKind:
		if len(path) > 0 && path[0] == hostVariable && !slices.Contains(path, "labels") {
			return most(maxItems)
		}
	default:
	}
	return nil
}

// EstimateCallCost implements checker.CostEstimator.
func (c costs) EstimateCallCost(function, _ string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate { //nolint:gocritic // the interface has a pointer
	if function != matchesFunction || len(args) == 0 {
		return nil
	}
	subject, pattern := args[0], args[len(args)-1]
	if target != nil {
		subject = *target
	}
	size := subject.ComputedSize()
	if size == nil {
		size = c.EstimateSize(subject)
	}
	literal, ok := pattern.Expr().AsLiteral().(types.String)
	if size == nil || !ok {
		return nil
	}
	n := c.patterns[string(literal)]
	return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: matchCost(size.Min, n), Max: matchCost(size.Max, n)}}
}

// CallCost implements interpreter.ActualCostEstimator.
func (c costs) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if function != matchesFunction || len(args) < 2 {
		return nil
	}
	subject, ok1 := args[0].(types.String)
	pattern, ok2 := args[1].(types.String)
	if !ok1 || !ok2 {
		return nil
	}
	return new(matchCost(uint64(len(subject)), c.patterns[string(pattern)]))
}

// matchCost returns the cost of matching a string of the length. It can't overflow, because
// strings are bounded by the size of an object.
func matchCost(length, states uint64) uint64 {
	return uint64(stateCost*float64(length+1)*float64(states)) + 1
}
