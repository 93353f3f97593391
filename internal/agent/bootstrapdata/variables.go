package bootstrapdata

import (
	"maps"
	"regexp"
	"sort"
	"strings"
)

// Variables are the variables of Jinja templates: a tree of map[string]any,
// []any, string, int64, float64, bool and nil.
type Variables map[string]any

// NewVariables returns the variables that cloud-init provides: metaData appears as
// ds.meta_data.*, standard as v1.* and also at the top level. Keys with "-" or "."
// are available with "_" as well. Both maps are copied.
func NewVariables(metaData, standard map[string]any) Variables {
	vars := Variables{}
	v1 := withAliases(standard)
	maps.Copy(vars, v1)
	vars["v1"] = v1
	vars["ds"] = map[string]any{"meta_data": withAliases(metaData)}
	return vars
}

// operators are the characters that Jinja would parse as operators.
var operators = regexp.MustCompile(`[-.]`)

func withAliases(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		v := m[k]
		if inner, ok := v.(map[string]any); ok {
			v = withAliases(inner)
		}
		out[k] = v
		if strings.ContainsAny(k, "-.") {
			out[operators.ReplaceAllString(k, "_")] = v
		}
	}
	return out
}
