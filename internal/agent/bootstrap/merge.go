package bootstrap

import (
	"slices"
	"strings"
)

// mergers is how a part of cloud-config asks to be merged with earlier ones
// (cloudinit.readthedocs.io, "Merging user data sections"). Of what can be
// asked for only that is done which loses nothing: lists one after the other,
// and mappings with different keys. The rest, the default among it, replaces or
// drops values, and is refused.
type mergers struct {
	// append and prepend say where the items of a later list go.
	append, prepend bool
	// recurse merges a mapping key by key.
	recurse bool
}

// mergersOf takes the keys away by which a part says how to merge it. They
// count before the header of the part.
func mergersOf(root *value, header string) (mergers, error) {
	how, line := header, 0
	for _, name := range []string{"merge_how", "merge_type"} {
		v := root.get(name)
		if v == nil {
			continue
		}
		root.fields = slices.DeleteFunc(slices.Clone(root.fields), func(f field) bool { return f.name == name })
		line = v.line
		switch v.kind {
		case kindString:
			how = v.text
		case kindList:
			how = mergerList(v)
		default:
			return mergers{}, failure(v.line, "%s is %s; write %q", name, v.kind, "list(append)+dict(recurse_array)+str()")
		}
		break
	}
	m, lists := mergers{}, false
	for term := range strings.SplitSeq(how, "+") {
		name, settings, _ := strings.Cut(strings.TrimSpace(term), "(")
		settings, closed := strings.CutSuffix(settings, ")")
		if !closed && how != "" {
			return m, failure(line, "%q does not say how to merge; write %q", how, "list(append)+dict(recurse_array)+str()")
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

// mergerList reads the form that is a list of mappings, into the other form.
func mergerList(v *value) string {
	var terms []string
	for _, item := range v.items {
		name, settings := item.get("name"), item.get("settings")
		if name == nil || settings == nil {
			continue
		}
		var words []string
		for _, s := range settings.items {
			words = append(words, s.text)
		}
		terms = append(terms, name.text+"("+strings.Join(words, ",")+")")
	}
	return strings.Join(terms, "+")
}

// mapping merges the fields of a later part into those of earlier ones.
func (m mergers) mapping(into, from *value, path string) error {
	for _, f := range from.fields {
		have := into.get(f.name)
		if have == nil {
			into.set(f)
			continue
		}
		name := path + f.name
		switch {
		case have.kind == kindList && f.value.kind == kindList && (m.append || m.prepend):
			first, second := have.items, f.value.items
			if m.prepend {
				first, second = second, first
			}
			into.set(field{f.name, f.line, &value{kind: kindList, line: have.line, items: slices.Concat(first, second)}})
		case have.kind == kindMap && f.value.kind == kindMap && m.recurse:
			merged := &value{kind: kindMap, line: have.line, fields: slices.Clone(have.fields)}
			if err := m.mapping(merged, f.value, name+"."); err != nil {
				return err
			}
			into.set(field{f.name, f.line, merged})
		case have.kind == f.value.kind && have.kind != kindList && have.kind != kindMap && have.text == f.value.text:
		default:
			return failure(f.line, "%s is in an earlier part too, and one of them would be lost; add \"merge_how: list(append)+dict(recurse_array)+str()\" to the later part, or write one part", name)
		}
	}
	return nil
}
