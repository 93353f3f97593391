package jinja

import (
	"fmt"
	"strings"
)

// method calls a method of a Python string or dictionary. It supports the methods that
// templates of bootstrap data use.
func method(of any, name string, args []any) (any, error) {
	switch of := of.(type) {
	case undefined:
		return nil, fmt.Errorf("%q is undefined, so it has no %q", of.name, name)
	case string:
		return stringMethod(of, name, args)
	case map[string]any:
		return dictMethod(of, name, args)
	}
	return nil, fmt.Errorf("%s has no method %q", typeName(of), name)
}

func stringMethod(s, name string, args []any) (any, error) {
	first := ""
	if len(args) > 0 {
		first = str(args[0])
	}
	switch name {
	case "upper":
		return strings.ToUpper(s), nil
	case "lower":
		return strings.ToLower(s), nil
	case "strip":
		return trim(s, args), nil
	case "lstrip":
		if len(args) == 0 {
			return strings.TrimLeft(s, " \t\r\n"), nil
		}
		return strings.TrimLeft(s, first), nil
	case "rstrip":
		if len(args) == 0 {
			return strings.TrimRight(s, " \t\r\n"), nil
		}
		return strings.TrimRight(s, first), nil
	case "startswith":
		return strings.HasPrefix(s, first), nil
	case "endswith":
		return strings.HasSuffix(s, first), nil
	case "replace":
		return replaceFilter(s, args)
	case "split":
		return pieces(s, args), nil
	case "join":
		if len(args) != 1 {
			return nil, fmt.Errorf("join wants one list")
		}
		return joinFilter(args[0], []any{s})
	}
	return nil, fmt.Errorf("a string has no method %q here", name)
}

func pieces(s string, args []any) []any {
	var parts []string
	switch {
	case len(args) == 0 || args[0] == nil:
		parts = strings.Fields(s)
	case len(args) > 1:
		n, _ := number(args[1])
		parts = strings.SplitN(s, str(args[0]), int(n)+1)
	default:
		parts = strings.Split(s, str(args[0]))
	}
	out := make([]any, len(parts))
	for i, part := range parts {
		out[i] = part
	}
	return out
}

func dictMethod(m map[string]any, name string, args []any) (any, error) {
	switch name {
	case "get":
		if len(args) == 0 {
			return nil, fmt.Errorf("get wants a key")
		}
		if v, ok := m[str(args[0])]; ok {
			return v, nil
		}
		if len(args) > 1 {
			return args[1], nil
		}
		return nil, nil
	case "keys", "values", "items":
		out := []any{}
		for _, k := range keys(m) {
			switch name {
			case "keys":
				out = append(out, k)
			case "values":
				out = append(out, m[k])
			default:
				out = append(out, []any{k, m[k]})
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("a mapping has no method %q here", name)
}
