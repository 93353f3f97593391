package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type filterFunc func(v any, args []any) (any, error)

// filterFor returns the Jinja filter with the given name.
func filterFor(name string) (filterFunc, bool) {
	f, ok := map[string]filterFunc{
		"default": defaultFilter, "d": defaultFilter,
		"lower":   text(func(s string, _ []any) any { return strings.ToLower(s) }),
		"upper":   text(func(s string, _ []any) any { return strings.ToUpper(s) }),
		"trim":    text(func(s string, args []any) any { return trim(s, args) }),
		"string":  text(func(s string, _ []any) any { return s }),
		"replace": replaceFilter,
		"capitalize": text(func(s string, _ []any) any {
			_, n := utf8.DecodeRuneInString(s)
			return strings.ToUpper(s[:n]) + strings.ToLower(s[n:])
		}),
		"indent": text(func(s string, args []any) any { return indent(s, args) }),
		"join":   joinFilter,
		"first":  endFilter(func(items []any) any { return items[0] }),
		"last":   endFilter(func(items []any) any { return items[len(items)-1] }),
		"length": lengthFilter, "count": lengthFilter,
		"list": func(v any, _ []any) (any, error) {
			items, err := iterate(v)
			return append([]any{}, items...), err
		},
		"sort":    sortFilter,
		"unique":  uniqueFilter,
		"reverse": reverseFilter,
		"int":     intFilter,
		"float":   floatFilter,
		"abs":     absFilter,
		"tojson":  jsonFilter,
	}[name]
	return f, ok
}

// text returns a filter that converts its input to a string and calls f.
func text(f func(s string, args []any) any) filterFunc {
	return func(v any, args []any) (any, error) { return f(str(v), args), nil }
}

func trim(s string, args []any) string {
	if len(args) > 0 {
		return strings.Trim(s, str(args[0]))
	}
	return strings.TrimSpace(s)
}

func indent(s string, args []any) string {
	width, first := 4, false
	if len(args) > 0 {
		if n, ok := number(args[0]); ok {
			width = min(max(int(n), 0), 1000)
		}
	}
	if len(args) > 1 {
		first = truth(args[1])
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if line != "" && (i > 0 || first) {
			lines[i] = strings.Repeat(" ", width) + line
		}
	}
	return strings.Join(lines, "\n")
}

func defaultFilter(v any, args []any) (any, error) {
	var fallback any = ""
	if len(args) > 0 {
		fallback = args[0]
	}
	if _, missing := v.(undefined); missing || len(args) > 1 && truth(args[1]) && !truth(v) {
		return fallback, nil
	}
	return v, nil
}

func replaceFilter(v any, args []any) (any, error) {
	if len(args) < 2 {
		return nil, fmt.Errorf("replace wants the old and the new text")
	}
	s, old, with := str(v), str(args[0]), str(args[1])
	if strings.Count(s, old)*len(with) > maxOutput {
		return nil, fmt.Errorf("a string is larger than %d bytes", maxOutput)
	}
	return strings.ReplaceAll(s, old, with), nil
}

func joinFilter(v any, args []any) (any, error) {
	items, err := iterate(v)
	if err != nil {
		return nil, err
	}
	by := ""
	if len(args) > 0 {
		by = str(args[0])
	}
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = str(item)
	}
	return strings.Join(parts, by), nil
}

func endFilter(pick func([]any) any) filterFunc {
	return func(v any, _ []any) (any, error) {
		items, err := iterate(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return undefined{"item of an empty list"}, nil
		}
		return pick(items), nil
	}
}

func lengthFilter(v any, _ []any) (any, error) {
	items, err := iterate(v)
	return int64(len(items)), err
}

func sortFilter(v any, _ []any) (any, error) {
	items, err := iterate(v)
	if err != nil {
		return nil, err
	}
	var failed error
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b any) int {
		// Jinja's sort ignores case.
		x, xok := a.(string)
		y, yok := b.(string)
		if xok && yok {
			a, b = strings.ToLower(x), strings.ToLower(y)
		}
		order, err := compare(a, b)
		if err != nil {
			failed = err
		}
		return order
	})
	return sorted, failed
}

func uniqueFilter(v any, _ []any) (any, error) {
	items, err := iterate(v)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	out := []any{}
	for _, item := range items {
		key := strings.ToLower(repr(item))
		if !seen[key] {
			seen[key] = true
			out = append(out, item)
		}
	}
	return out, nil
}

func reverseFilter(v any, _ []any) (any, error) {
	items, err := iterate(v)
	if err != nil {
		return nil, err
	}
	reversed := slices.Clone(items)
	slices.Reverse(reversed)
	if _, ok := v.(string); ok {
		return joinFilter(reversed, nil)
	}
	return reversed, nil
}

func intFilter(v any, args []any) (any, error) {
	if f, ok := number(v); ok && math.Abs(f) < 1<<63 {
		return int64(f), nil
	}
	if s, ok := v.(string); ok {
		if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); err == nil {
			return n, nil
		}
		if f, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil && math.Abs(f) < 1<<63 {
			return int64(f), nil
		}
	}
	if len(args) > 0 {
		return args[0], nil
	}
	return int64(0), nil
}

func floatFilter(v any, args []any) (any, error) {
	if f, ok := number(v); ok {
		return f, nil
	}
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
			return f, nil
		}
	}
	if len(args) > 0 {
		return args[0], nil
	}
	return float64(0), nil
}

func absFilter(v any, _ []any) (any, error) {
	switch v := v.(type) {
	case int64:
		return max(v, -v), nil
	case float64:
		return math.Abs(v), nil
	}
	return nil, fmt.Errorf("abs wants a number, not %s", typeName(v))
}

// jsonFilter writes JSON with the white space of Python's json.dumps. Like Jinja, it
// escapes the special characters of HTML.
func jsonFilter(v any, _ []any) (any, error) {
	if u, ok := v.(undefined); ok {
		return nil, fmt.Errorf("%q is undefined, so it cannot become JSON", u.name)
	}
	var out bytes.Buffer
	if err := writeJSON(&out, v); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(out.String(), "'", `\u0027`), nil
}

func writeJSON(out *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case []any:
		out.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				out.WriteString(", ")
			}
			if err := writeJSON(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	case map[string]any:
		out.WriteByte('{')
		for i, k := range keys(v) {
			if i > 0 {
				out.WriteString(", ")
			}
			if err := writeJSON(out, k); err != nil {
				return err
			}
			out.WriteString(": ")
			if err := writeJSON(out, v[k]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
		return nil
	}
	text, err := json.Marshal(v)
	out.Write(text)
	return err
}
