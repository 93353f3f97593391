package jinja

import (
	"fmt"
	"strings"
)

type testFunc func(v any, args []any) (bool, error)

// testFor returns the Jinja test with the given name. A test follows "is".
func testFor(name string) (testFunc, bool) {
	t, ok := map[string]testFunc{
		"defined":   kind(func(v any) bool { _, u := v.(undefined); return !u }),
		"undefined": kind(func(v any) bool { _, u := v.(undefined); return u }),
		"none":      kind(func(v any) bool { return v == nil }),
		"string":    kind(func(v any) bool { _, ok := v.(string); return ok }),
		"boolean":   kind(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      kind(func(v any) bool { b, ok := v.(bool); return ok && b }),
		"false":     kind(func(v any) bool { b, ok := v.(bool); return ok && !b }),
		"integer":   kind(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":     kind(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    kind(func(v any) bool { _, ok := number(v); return ok }),
		"mapping":   kind(func(v any) bool { _, ok := v.(map[string]any); return ok }),
		"sequence":  kind(func(v any) bool { _, err := iterate(v); return err == nil }),
		"iterable":  kind(func(v any) bool { _, err := iterate(v); return err == nil }),
		"lower":     kind(func(v any) bool { return str(v) == strings.ToLower(str(v)) }),
		"upper":     kind(func(v any) bool { return str(v) == strings.ToUpper(str(v)) }),
		"odd":       divides(2, 1),
		"even":      divides(2, 0),
		"divisibleby": func(v any, args []any) (bool, error) {
			n, ok := v.(int64)
			if len(args) != 1 || !ok {
				return false, fmt.Errorf("divisibleby wants two whole numbers")
			}
			by, ok := args[0].(int64)
			if !ok || by == 0 {
				return false, fmt.Errorf("divisibleby wants a whole number other than zero")
			}
			return n%by == 0, nil
		},
		"eq": operator("=="), "equalto": operator("=="), "ne": operator("!="),
		"lt": operator("<"), "le": operator("<="), "gt": operator(">"), "ge": operator(">="),
		"in": operator("in"),
	}[name]
	return t, ok
}

func kind(f func(v any) bool) testFunc {
	return func(v any, _ []any) (bool, error) { return f(v), nil }
}

func divides(by, rest int64) testFunc {
	return func(v any, _ []any) (bool, error) {
		n, ok := v.(int64)
		if !ok {
			return false, fmt.Errorf("%s is neither odd nor even", typeName(v))
		}
		return ((n%by)+by)%by == rest, nil
	}
}

// operator returns the test for a comparison: "x is eq 1" means "x == 1".
func operator(op string) testFunc {
	return func(v any, args []any) (bool, error) {
		if len(args) != 1 {
			return false, fmt.Errorf("this test wants one argument")
		}
		out, err := binary{op, literal{v}, literal{args[0]}}.eval(&renderer{})
		if err != nil {
			return false, err
		}
		return truth(out), nil
	}
}
