package jinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

type expr interface {
	eval(r *renderer) (any, error)
}

func (r *renderer) eval(e expr) (any, error) {
	if err := r.step(); err != nil {
		return nil, err
	}
	return e.eval(r)
}

type literal struct{ value any }

func (e literal) eval(*renderer) (any, error) { return e.value, nil }

type variable string

func (e variable) eval(r *renderer) (any, error) {
	if v, ok := r.scope.get(string(e)); ok {
		return v, nil
	}
	return undefined{string(e)}, nil
}

// index is an attribute or an item: a.b, a.0, a["b"] or a[0]. Jinja treats them nearly
// alike.
type index struct{ of, key expr }

func (e index) eval(r *renderer) (any, error) {
	of, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	key, err := r.eval(e.key)
	if err != nil {
		return nil, err
	}
	switch of := of.(type) {
	case undefined:
		return nil, fmt.Errorf("%q is undefined, so it has no %q", of.name, str(key))
	case map[string]any:
		if v, ok := of[str(key)]; ok {
			return v, nil
		}
	case []any:
		if i, ok := key.(int64); ok {
			if i < 0 {
				i += int64(len(of))
			}
			if i >= 0 && i < int64(len(of)) {
				return of[i], nil
			}
		}
	case string:
		letters := []rune(of)
		if i, ok := key.(int64); ok {
			if i < 0 {
				i += int64(len(letters))
			}
			if i >= 0 && i < int64(len(letters)) {
				return string(letters[i]), nil
			}
		}
	}
	return undefined{str(key)}, nil
}

type conditional struct{ then, cond, otherwise expr }

func (e conditional) eval(r *renderer) (any, error) {
	v, err := r.eval(e.cond)
	if err != nil {
		return nil, err
	}
	if truth(v) {
		return r.eval(e.then)
	}
	if e.otherwise == nil {
		return "", nil
	}
	return r.eval(e.otherwise)
}

type negation struct{ of expr }

func (e negation) eval(r *renderer) (any, error) {
	v, err := r.eval(e.of)
	return !truth(v), err
}

type list []expr

func (e list) eval(r *renderer) (any, error) { return r.all(e) }

type dict [][2]expr

func (e dict) eval(r *renderer) (any, error) {
	m := map[string]any{}
	for _, pair := range e {
		k, err := r.eval(pair[0])
		if err != nil {
			return nil, err
		}
		if m[str(k)], err = r.eval(pair[1]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (r *renderer) all(exprs []expr) ([]any, error) {
	values := make([]any, 0, len(exprs))
	for _, e := range exprs {
		v, err := r.eval(e)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

type filtered struct {
	input  expr
	filter filterFunc
	args   []expr
}

func (e filtered) eval(r *renderer) (any, error) {
	v, err := r.eval(e.input)
	if err != nil {
		return nil, err
	}
	args, err := r.all(e.args)
	if err != nil {
		return nil, err
	}
	out, err := e.filter(v, args)
	if s, ok := out.(string); ok && err == nil {
		return s, r.checkSize(s)
	}
	return out, err
}

// checkSize returns an error for a string that is larger than maxOutput. Repeated
// joining or replacing can make one.
func (r *renderer) checkSize(s string) error {
	if len(s) > maxOutput {
		return fmt.Errorf("a string is larger than %d bytes", maxOutput)
	}
	return nil
}

type tested struct {
	input expr
	test  testFunc
	args  []expr
}

func (e tested) eval(r *renderer) (any, error) {
	v, err := r.eval(e.input)
	if err != nil {
		return nil, err
	}
	args, err := r.all(e.args)
	if err != nil {
		return nil, err
	}
	return e.test(v, args)
}

// call is a call of range() or of a method of a value.
type call struct {
	target expr
	args   []expr
}

func (e call) eval(r *renderer) (any, error) {
	args, err := r.all(e.args)
	if err != nil {
		return nil, err
	}
	if name, ok := e.target.(variable); ok {
		if name == "range" {
			return rangeOf(args)
		}
		return nil, fmt.Errorf("no function named %q", string(name))
	}
	at, ok := e.target.(index)
	if !ok {
		return nil, errors.New("only range() and methods of values can be called")
	}
	of, err := r.eval(at.of)
	if err != nil {
		return nil, err
	}
	name, err := r.eval(at.key)
	if err != nil {
		return nil, err
	}
	return method(of, str(name), args)
}

type binary struct {
	op          string
	left, right expr
}

func (e binary) eval(r *renderer) (any, error) {
	left, err := r.eval(e.left)
	if err != nil {
		return nil, err
	}
	if e.op == "and" && !truth(left) || e.op == "or" && truth(left) {
		return left, nil
	}
	right, err := r.eval(e.right)
	if err != nil {
		return nil, err
	}
	switch e.op {
	case "and", "or":
		return right, nil
	case "~":
		joined := str(left) + str(right)
		return joined, r.checkSize(joined)
	case "==":
		return equal(left, right), nil
	case "!=":
		return !equal(left, right), nil
	case "in":
		return contains(right, left)
	case "not in":
		in, err := contains(right, left)
		return !in, err
	case "<", "<=", ">", ">=":
		order, err := compare(left, right)
		return e.op[0] == '<' && order < 0 || e.op[0] == '>' && order > 0 || len(e.op) == 2 && order == 0, err
	}
	return arithmetic(e.op, left, right)
}

func arithmetic(op string, left, right any) (any, error) {
	for _, side := range []any{left, right} {
		u, ok := side.(undefined)
		if !ok {
			continue
		}
		if lu, l := left.(undefined); l && op == "-" {
			other := strings.TrimPrefix(str(right), MissingPrefix)
			return nil, fmt.Errorf("undefined variable \"%s-%s\": this is a subtraction; perhaps you meant \"%s_%s\"", lu.name, other, lu.name, other)
		}
		return nil, fmt.Errorf("%q is undefined", u.name)
	}
	if op == "+" {
		switch l := left.(type) {
		case string:
			if r, ok := right.(string); ok {
				if len(l)+len(r) > maxOutput {
					return nil, fmt.Errorf("a string is larger than %d bytes", maxOutput)
				}
				return l + r, nil
			}
		case []any:
			if r, ok := right.([]any); ok {
				return append(append([]any{}, l...), r...), nil
			}
		}
	}
	if l, ok := left.(int64); ok {
		if r, ok := right.(int64); ok {
			return integers(op, l, r)
		}
	}
	l, lok := number(left)
	r, rok := number(right)
	if !lok || !rok {
		return nil, fmt.Errorf("cannot compute %s %s %s", typeName(left), op, typeName(right))
	}
	return floats(op, l, r)
}

var errDivision = errors.New("division by zero")

func integers(op string, l, r int64) (any, error) {
	switch op {
	case "+":
		return l + r, nil
	case "-":
		return l - r, nil
	case "*":
		return l * r, nil
	case "/":
		return floats(op, float64(l), float64(r))
	}
	if r == 0 {
		return nil, errDivision
	}
	quotient := l / r
	if l%r != 0 && (l < 0) != (r < 0) {
		quotient-- // Python rounds down, Go towards zero
	}
	if op == "//" {
		return quotient, nil
	}
	return l - quotient*r, nil
}

func floats(op string, l, r float64) (any, error) {
	switch op {
	case "+":
		return l + r, nil
	case "-":
		return l - r, nil
	case "*":
		return l * r, nil
	}
	if r == 0 {
		return nil, errDivision
	}
	switch op {
	case "/":
		return l / r, nil
	case "//":
		return math.Floor(l / r), nil
	}
	return l - math.Floor(l/r)*r, nil
}
