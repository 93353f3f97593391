package selector

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/utils/lru"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// MaxCost is what an expression may cost for one host, in CEL's units: both
	// what it would cost for a host whose inventory is as large as the API allows,
	// when it is compiled, and what it does cost. It lets a look at every address
	// of every interface pass (25,000), and nothing that nests deeper. A unit is a
	// field read or a comparison, some 100 ns.
	MaxCost = 30_000
	// MaxTotalCost is what all evaluations by one Selector may cost: 300 units for
	// each of 30,000 hosts. It takes a second or two.
	MaxTotalCost = 10_000_000

	// maxLength is that of the API's field.
	maxLength = 4096
	// maxDepth of nested parentheses and operators, well below what a stack bears.
	maxDepth = 100
	// interruptEvery is after how many rounds of a loop the context is looked at.
	interruptEvery = 100
	// cached expressions; more than a namespace's templates will have. One takes
	// some 10 KiB.
	cached = 256
	// maxProblems that are told at once.
	maxProblems = 3
	// maxProblem bounds one problem's text, in bytes: parsers repeat what they are given.
	maxProblem = 256
)

const hostVariable = "host"

// host is what expressions see. The fields' JSON names are those that they use.
type host struct {
	Name      string                 `json:"name"`
	Labels    map[string]string      `json:"labels"`
	Inventory *infrav1.HostInventory `json:"inventory"`
}

// Compiler compiles host selectors and remembers the expressions that it has
// compiled last, good or bad. Several goroutines may use it. A nil Compiler
// remembers nothing.
type Compiler struct {
	env      *cel.Env
	compiles *lru.Cache
}

// NewCompiler makes a Compiler.
func NewCompiler() (*Compiler, error) {
	e, err := newEnvironment()
	if err != nil {
		return nil, fmt.Errorf("declaring what expressions may use: %w", err)
	}
	return &Compiler{env: e, compiles: lru.New(cached)}, nil
}

// Check says what is wrong with an expression, with line and column.
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

// newEnvironment offers what comparisons of facts need. Absent is what could
// make values grow from step to step (map, sums of strings), what would get
// round the types (dyn), and times, of which hosts have none.
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
	return &expression{program: program, readsInventory: readsInventory(tree)}, nil
}

// orMore writes a cost. What has no bound is told as a large one.
func orMore(cost uint64) string {
	const large = 1_000_000_000
	if cost > large {
		return fmt.Sprintf("%d or more", uint64(large))
	}
	return fmt.Sprintf("%d", cost)
}

// problems tells the first few issues, with line and column counted from 1.
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

// holds evaluates the expression, and says what that cost. An error is no match:
// what is not there is not what was asked for.
func (e *expression) holds(ctx context.Context, h *infrav1.ElementalHost) (_ bool, cost uint64) {
	value, details, err := e.program.ContextEval(ctx, map[string]any{
		hostVariable: &host{Name: h.Name, Labels: h.Labels, Inventory: h.Status.Inventory},
	})
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	return err == nil && value == types.True, cost
}

// readsInventory reports whether the expression looks at the inventory in any way.
// No other type has a field of that name.
func readsInventory(tree *ast.AST) bool {
	found := false
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		found = found || (e.Kind() == ast.SelectKind && e.AsSelect().FieldName() == "inventory")
	}))
	return found
}
