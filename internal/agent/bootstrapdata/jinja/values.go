package jinja

import (
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// str converts a value to text like Python's str(). The output contains this text.
func str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case undefined:
		return v.String()
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		form := byte('f')
		if abs := math.Abs(v); abs >= 1e16 || abs < 1e-4 && abs > 0 {
			form = 'e' // Python uses the exponent from here on
		}
		text := strconv.FormatFloat(v, form, -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		return text
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = repr(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range keys(v) {
			parts = append(parts, repr(k)+": "+repr(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// repr converts a value to text like Python's repr(). Lists and dictionaries contain
// their elements in this form.
func repr(v any) string {
	s, ok := v.(string)
	if !ok {
		return str(v)
	}
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	return quote + strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\r", `\r`, quote, `\`+quote).Replace(s) + quote
}

func keys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case int64:
		return v != 0
	case float64:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func equal(a, b any) bool {
	x, xok := number(a)
	y, yok := number(b)
	if xok && yok {
		return x == y
	}
	_, au := a.(undefined)
	_, bu := b.(undefined)
	if au || bu {
		return au && bu
	}
	return reflect.DeepEqual(a, b)
}

func compare(a, b any) (int, error) {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	}
	x, xok := number(a)
	y, yok := number(b)
	if !xok || !yok {
		return 0, fmt.Errorf("cannot compare %s with %s", typeName(a), typeName(b))
	}
	switch {
	case x < y:
		return -1, nil
	case x > y:
		return 1, nil
	}
	return 0, nil
}

func contains(in, what any) (bool, error) {
	switch in := in.(type) {
	case string:
		return strings.Contains(in, str(what)), nil
	case []any:
		for _, item := range in {
			if equal(item, what) {
				return true, nil
			}
		}
		return false, nil
	case map[string]any:
		_, ok := in[str(what)]
		return ok, nil
	case undefined:
		return false, nil
	}
	return false, fmt.Errorf("%s cannot contain anything", typeName(in))
}

// iterate returns the items of a value for a loop. An undefined variable has none.
func iterate(v any) ([]any, error) {
	switch v := v.(type) {
	case []any:
		return v, nil
	case undefined:
		return nil, nil
	case map[string]any:
		var out []any
		for _, k := range keys(v) {
			out = append(out, k)
		}
		return out, nil
	case string:
		var out []any
		for _, c := range v {
			out = append(out, string(c))
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s is not a list", typeName(v))
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case undefined:
		return fmt.Sprintf("undefined variable %q", v.name)
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return fmt.Sprintf("%T", v)
}

// maxRange limits the length of a range(), as in Jinja's sandbox.
const maxRange = 100_000

func rangeOf(args []any) (any, error) {
	bounds := []int64{0, 0, 1}
	for i, a := range args {
		n, ok := a.(int64)
		if !ok || i > 2 {
			return nil, fmt.Errorf("range() wants one to three whole numbers")
		}
		bounds[i] = n
	}
	switch len(args) {
	case 0:
		return nil, fmt.Errorf("range() wants one to three whole numbers")
	case 1:
		bounds[0], bounds[1] = 0, bounds[0]
	}
	from, to, by := bounds[0], bounds[1], bounds[2]
	if by == 0 {
		return nil, fmt.Errorf("range() cannot step by zero")
	}
	if (to-from)/by > maxRange {
		return nil, fmt.Errorf("range() is longer than %d", maxRange)
	}
	out := []any{}
	for n := from; by > 0 && n < to || by < 0 && n > to; n += by {
		out = append(out, n)
	}
	return out, nil
}
