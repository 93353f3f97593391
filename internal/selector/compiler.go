package selector

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/utils/lru"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// MaxCost is the maximum cost of an expression for one host, in CEL's units. It limits
	// the estimate for the largest possible inventory when the expression is compiled, and
	// the actual cost. Reading every address of every interface (25,000) is allowed, deeper
	// loops are not. A unit is a field read or a comparison, about 100 ns.
	MaxCost = 30_000
	// MaxTotalCost is the maximum cost of all evaluations by one Selector: 300 units for
	// each of 30,000 hosts, or about two seconds.
	MaxTotalCost = 10_000_000

	// maxLength is the maximum length of the API's field.
	maxLength = 4096
	// maxDepth of nested parentheses and operators, well below the limit of the stack.
	maxDepth = 100
	// interruptEvery is the number of loop iterations between checks of the context.
	interruptEvery = 100
	// cached is the number of cached expressions, of about 10 KiB each.
	cached = 256
	// maxProblems is the maximum number of problems in one error.
	maxProblems = 3
	// maxProblem is the maximum length of one problem, in bytes, because it may quote the
	// expression.
	maxProblem = 256
)

const hostVariable = "host"

// host is the variable host of expressions, with the JSON names of its fields.
type host struct {
	Name      string                 `json:"name"`
	Labels    map[string]string      `json:"labels"`
	Inventory *infrav1.HostInventory `json:"inventory"`
}

// Compiler compiles host selectors and caches compiled expressions and compile errors.
// Several goroutines may use it. A nil Compiler compiles without a cache.
type Compiler struct {
	env      *cel.Env
	compiles *lru.Cache
}

// NewCompiler returns a Compiler with an empty cache.
func NewCompiler() (*Compiler, error) {
	e, err := newEnvironment()
	if err != nil {
		return nil, fmt.Errorf("declaring what expressions may use: %w", err)
	}
	return &Compiler{env: e, compiles: lru.New(cached)}, nil
}

// Check returns the compile errors of an expression, with lines and columns, or nil.
func (c *Compiler) Check(expression string) error {
	_, err := c.compiled(expression)
	return err
}

type outcome struct {
	expression *expression
	err        error
}

func (c *Compiler) compiled(text string) (*expression, error) {
	if c == nil {
		fresh, err := NewCompiler()
		if err != nil {
			return nil, err
		}
		c = fresh
	}
	if known, ok := c.compiles.Get(text); ok {
		if o, ok := known.(outcome); ok {
			return o.expression, o.err
		}
	}
	e, err := compile(c.env, text)
	c.compiles.Add(text, outcome{e, err})
	return e, err
}

// newEnvironment defines the language subset for comparisons of facts. It leaves out
// functions that make values grow (map, sums of strings), dyn, which bypasses the types,
// and times, because hosts have none.
func newEnvironment() (*cel.Env, error) {
	subset := env.NewLibrarySubset().
		AddIncludedMacros(operators.Has, operators.All, operators.Exists, operators.ExistsOne, operators.Filter)
	for _, name := range []string{
		operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot,
		operators.Equals, operators.NotEquals,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
		operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate,
		operators.Index, operators.In, operators.NotStrictlyFalse,
		"size", "contains", "startsWith", "endsWith", matchesFunction, "int", "double",
	} {
		subset.AddIncludedFunctions(env.NewFunction(name))
	}
	// Macros need sums of lists.
	subset.AddIncludedFunctions(env.NewFunction(operators.Add,
		env.NewOverload("add_int64", nil, nil), env.NewOverload("add_double", nil, nil), env.NewOverload("add_list", nil, nil)))
	return cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(subset)),
		withObjects(reflect.TypeFor[host]()),
		cel.Variable(hostVariable, cel.ObjectType(typeName(reflect.TypeFor[host]()))),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxLength),
		cel.ParserRecursionLimit(maxDepth),
		cel.ASTValidators(cel.ValidateHomogeneousAggregateLiterals(), restrictions{}),
	)
}

// expression is a compiled expression.
type expression struct {
	program        cel.Program
	readsInventory bool
	// parts are for Why, and made when it is called first.
	parts func() []part
}

func compile(e *cel.Env, text string) (*expression, error) {
	checked, issues := e.Compile(text)
	if issues.Err() != nil {
		return nil, problems(issues)
	}
	if checked.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("the expression must be true or false, but it is of type %s", checked.OutputType())
	}
	tree := checked.NativeRep()
	costs := costs{patterns: patterns(tree)}
	estimate, err := e.EstimateCost(checked, costs)
	if err != nil {
		return nil, fmt.Errorf("estimating the cost: %w", err)
	}
	if estimate.Max > MaxCost {
		return nil, fmt.Errorf("the expression could cost %s for one host, which is more than %d; "+
			"nest fewer loops, and match shorter patterns", orMore(estimate.Max), MaxCost)
	}
	program, err := e.Program(checked,
		cel.EvalOptions(cel.OptOptimize), cel.CostTracking(costs), cel.CostLimit(MaxCost), cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, fmt.Errorf("planning the evaluation: %w", err)
	}
	return &expression{
		program: program, readsInventory: readsInventory(tree), parts: sync.OnceValue(func() []part { return parts(e, text) }),
	}, nil
}

// orMore formats a cost; an unbounded cost becomes "1000000000 or more".
func orMore(cost uint64) string {
	const large = 1_000_000_000
	if cost > large {
		return fmt.Sprintf("%d or more", uint64(large))
	}
	return fmt.Sprintf("%d", cost)
}

// problems returns the first issues as an error, with lines and columns counted from 1.
func problems(issues *cel.Issues) error {
	found := issues.Errors()
	var texts []string
	for _, p := range found[:min(len(found), maxProblems)] {
		text := strings.Join(strings.Fields(p.Message), " ")
		if len(text) > maxProblem {
			text = strings.ToValidUTF8(text[:maxProblem], "") + "…"
		}
		texts = append(texts, fmt.Sprintf("line %d, column %d: %s", p.Location.Line(), p.Location.Column()+1, text))
	}
	return fmt.Errorf("%s", strings.Join(texts, "; "))
}

// matches evaluates the expression for the host and returns the cost. An error, for example
// because of a missing label, is no match.
func (e *expression) matches(ctx context.Context, h *infrav1.ElementalHost) (_ bool, cost uint64) {
	value, details, err := e.program.ContextEval(ctx, variables(h))
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	return err == nil && value == types.True, cost
}

// variables returns the variables of an evaluation for the host.
func variables(h *infrav1.ElementalHost) map[string]any {
	return map[string]any{hostVariable: &host{Name: h.Name, Labels: h.Labels, Inventory: h.Status.Inventory}}
}

// readsInventory reports whether the expression reads the inventory. No other type has a
// field of that name.
func readsInventory(tree *ast.AST) bool {
	found := false
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		found = found || (e.Kind() == ast.SelectKind && e.AsSelect().FieldName() == "inventory")
	}))
	return found
}
