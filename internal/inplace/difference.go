package inplace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// tree returns a value as decoded JSON.
func tree(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		return nil // plain structs can be encoded
	}
	var out any
	_ = json.Unmarshal(text, &out) // it was encoded a moment ago
	return out
}

// difference returns the path of the first field, in the order of names, in which two values
// of decoded JSON differ; blank if they don't. A field that is empty equals a missing one.
func difference(path string, a, b any) string {
	if isEmpty(a) && isEmpty(b) {
		return ""
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			return differenceOfObjects(path, x, y)
		}
		if b == nil {
			return differenceOfObjects(path, x, nil)
		}
	case []any:
		if y, ok := b.([]any); ok {
			return differenceOfLists(path, x, y)
		}
	case nil:
		if y, ok := b.(map[string]any); ok {
			return differenceOfObjects(path, nil, y)
		}
	default:
		if _, isObject := b.(map[string]any); isObject {
			return path
		}
		if _, isList := b.([]any); !isList && a == b {
			return ""
		}
	}
	return path
}

func differenceOfObjects(path string, a, b map[string]any) string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if found := difference(path+"."+name, a[name], b[name]); found != "" {
			return found
		}
	}
	return ""
}

func differenceOfLists(path string, a, b []any) string {
	if len(a) != len(b) {
		return path
	}
	for i := range a {
		if found := difference(fmt.Sprintf("%s[%d]", path, i), a[i], b[i]); found != "" {
			return found
		}
	}
	return ""
}

// isEmpty reports whether the value is missing, or an object or list without content.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, field := range v {
			if !isEmpty(field) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	default:
		return false
	}
}
