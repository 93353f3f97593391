package cloudconfig

import (
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// mergers says how a part of cloud-config is merged with earlier parts
// (cloudinit.readthedocs.io, "Merging user data sections"). Only settings that lose
// no value are supported: concatenating lists, and mappings with different keys.
// The other settings, cloud-init's default included, are errors.
type mergers struct {
	// append and prepend add the items of a later list after or before the earlier.
	append, prepend bool
	// recurse merges a mapping key by key.
	recurse bool
}

// mergersOf reads the mergers of a part and removes their keys from root. The keys
// take precedence over the header of the part.
func mergersOf(root *document.Value, header string) (mergers, error) {
	how, line := header, 0
	for _, name := range []string{"merge_how", "merge_type"} {
		v := root.Get(name)
		if v == nil {
			continue
		}
		root.Fields = slices.DeleteFunc(slices.Clone(root.Fields), func(f document.Field) bool { return f.Name == name })
		line = v.Line
		switch v.Kind {
		case document.String:
			how = v.Text
		case document.List:
			how = mergerList(v)
		default:
			return mergers{}, bootstrapdata.ErrorAt(v.Line, "%s is %s; write %q", name, v.Kind, "list(append)+dict(recurse_array)+str()")
		}
		break
	}
	m, lists := mergers{}, false
	for term := range strings.SplitSeq(how, "+") {
		name, settings, _ := strings.Cut(strings.TrimSpace(term), "(")
		settings, closed := strings.CutSuffix(settings, ")")
		if !closed && how != "" {
			return m, bootstrapdata.ErrorAt(line, "%q does not say how to merge; write %q", how, "list(append)+dict(recurse_array)+str()")
		}
		has := func(setting string) bool {
			return slices.Contains(strings.Split(strings.ReplaceAll(settings, " ", ""), ","), setting)
		}
		switch name {
		case "list":
			m.append = has("append")
			m.prepend = has("prepend") && !m.append
		case "dict":
			m.recurse, lists = !has("replace"), has("recurse_array")
		}
	}
	m.append, m.prepend = m.append && lists, m.prepend && lists
	return m, nil
}

// mergerList converts the form with a list of mappings to the form with a string.
func mergerList(v *document.Value) string {
	var terms []string
	for _, item := range v.Items {
		name, settings := item.Get("name"), item.Get("settings")
		if name == nil || settings == nil {
			continue
		}
		var words []string
		for _, s := range settings.Items {
			words = append(words, s.Text)
		}
		terms = append(terms, name.Text+"("+strings.Join(words, ",")+")")
	}
	return strings.Join(terms, "+")
}

// mapping merges the fields of a later part into those of earlier ones.
func (m mergers) mapping(into, from *document.Value, path string) error {
	for _, f := range from.Fields {
		have := into.Get(f.Name)
		if have == nil {
			into.Set(f)
			continue
		}
		name := path + f.Name
		switch {
		case have.Kind == document.List && f.Value.Kind == document.List && (m.append || m.prepend):
			first, second := have.Items, f.Value.Items
			if m.prepend {
				first, second = second, first
			}
			into.Set(document.Field{Name: f.Name, Line: f.Line, Value: &document.Value{Kind: document.List, Line: have.Line, Items: slices.Concat(first, second)}})
		case have.Kind == document.Map && f.Value.Kind == document.Map && m.recurse:
			merged := &document.Value{Kind: document.Map, Line: have.Line, Fields: slices.Clone(have.Fields)}
			if err := m.mapping(merged, f.Value, name+"."); err != nil {
				return err
			}
			into.Set(document.Field{Name: f.Name, Line: f.Line, Value: merged})
		case have.Kind == f.Value.Kind && have.Kind != document.List && have.Kind != document.Map && have.Text == f.Value.Text:
		default:
			return bootstrapdata.ErrorAt(f.Line, "%s is in an earlier part too, and one of them would be lost; add \"merge_how: list(append)+dict(recurse_array)+str()\" to the later part, or write one part", name)
		}
	}
	return nil
}
