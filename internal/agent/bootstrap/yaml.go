package bootstrap

import (
	"encoding/base64"
	"errors"
	"io"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds a document after its aliases were followed, so that a few
// lines cannot grow without end.
const maxNodes = 1 << 18

type kind int

const (
	kindNull kind = iota
	kindString
	kindInt
	kindFloat
	kindBool
	kindTime
	kindBinary
	kindList
	kindMap
)

func (k kind) String() string {
	return [...]string{"nothing", "a string", "a whole number", "a number", "a boolean", "a date", "binary data", "a list", "a mapping"}[k]
}

// value is a node of YAML 1.1 as PyYAML resolves it: what cloud-init sees.
type value struct {
	kind   kind
	line   int
	text   string // of every scalar: as it is written
	number int64
	float  float64
	truth  bool
	items  []*value
	fields []field // in document order; of equal keys only the last
}

type field struct {
	name  string
	line  int
	value *value
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// parseYAML reads exactly one document whose root is a mapping.
func parseYAML(text string) (*value, error) {
	if err := checkCharacters(text); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, failure(0, "the document holds nothing but comments")
		}
		return nil, yamlError(text, err)
	}
	switch err := dec.Decode(new(yaml.Node)); {
	case err == nil:
		return nil, failure(0, "the document holds several YAML documents separated by ---; only one is executed")
	case !errors.Is(err, io.EOF):
		return nil, yamlError(text, err)
	}
	c := &converter{open: map[*yaml.Node]bool{}}
	root, err := c.convert(doc.Content[0])
	if err != nil {
		return nil, err
	}
	switch {
	case root.kind == kindNull || root.kind == kindMap && len(root.fields) == 0:
		return nil, failure(0, "the document holds nothing to do")
	case root.kind != kindMap:
		return nil, failure(root.line, "the document is %s, not a mapping", root.kind)
	}
	return root, nil
}

// yamlError finds the line that a person has to look at. The library names the
// one where the enclosing structure began; the culprit is the last line of the
// shortest beginning of the text that fails in the same way.
func yamlError(text string, err error) error {
	lines := strings.SplitAfter(text, "\n")
	line := 1 + sort.Search(len(lines)-1, func(n int) bool {
		dec := yaml.NewDecoder(strings.NewReader(strings.Join(lines[:n+1], "")))
		for {
			if failed := dec.Decode(new(yaml.Node)); failed != nil {
				return failed.Error() == err.Error()
			}
		}
	})
	reason := yamlLine.ReplaceAllString(err.Error(), "")
	return failure(line, "malformed YAML: %s", strings.TrimPrefix(reason, "yaml: "))
}

// checkCharacters refuses what YAML 1.1 does not allow in a stream.
func checkCharacters(text string) error {
	line := 1
	for _, c := range text {
		switch {
		case c == '\n':
			line++
		case c == '\t' || c == '\r' || c >= 0x20 && c <= 0x7e || c == 0x85 || c >= 0xa0 && c != 0xfffe && c != 0xffff:
		default:
			return failure(line, "the control character %U is not allowed in YAML; write it as an escape in double quotes", c)
		}
	}
	return nil
}

type converter struct {
	nodes int
	open  map[*yaml.Node]bool
}

func (c *converter) convert(n *yaml.Node) (*value, error) {
	c.nodes++
	if c.nodes > maxNodes {
		return nil, failure(n.Line, "the document has more than %d values", maxNodes)
	}
	if c.open[n] {
		return nil, failure(n.Line, "an alias contains itself")
	}
	switch n.Kind {
	case yaml.AliasNode:
		c.open[n] = true
		defer delete(c.open, n)
		return c.convert(n.Alias)
	case yaml.ScalarNode:
		return scalar(n)
	case yaml.DocumentNode, yaml.SequenceNode, yaml.MappingNode:
	}
	c.open[n] = true
	defer delete(c.open, n)
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!map" && n.Tag != "!!seq" {
		return nil, failure(n.Line, "the YAML tag %s is unknown", n.Tag)
	}
	v := &value{kind: kindList, line: n.Line}
	if n.Kind == yaml.MappingNode {
		v.kind = kindMap
		return v, c.mapping(n, v)
	}
	for _, item := range n.Content {
		converted, err := c.convert(item)
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, converted)
	}
	return v, nil
}

func (c *converter) mapping(n *yaml.Node, v *value) error {
	var merged []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		val, err := c.convert(n.Content[i+1])
		if err != nil {
			return err
		}
		if key.Kind == yaml.ScalarNode && key.Value == "<<" && key.Style == 0 {
			fields, err := mergeFields(val)
			if err != nil {
				return err
			}
			merged = append(merged, fields...)
			continue
		}
		name, err := c.convert(key)
		if err != nil {
			return err
		}
		if name.kind == kindList || name.kind == kindMap {
			return failure(key.Line, "the key of a mapping is %s", name.kind)
		}
		v.set(field{name.python(), key.Line, val})
	}
	for _, f := range merged {
		if v.get(f.name) == nil {
			v.set(f)
		}
	}
	return nil
}

func mergeFields(v *value) ([]field, error) {
	switch v.kind {
	case kindMap:
		return v.fields, nil
	case kindList:
		var all []field
		for _, item := range v.items {
			if item.kind != kindMap {
				return nil, failure(item.line, "<< merges mappings, not %s", item.kind)
			}
			all = append(all, item.fields...)
		}
		return all, nil
	default:
		return nil, failure(v.line, "<< merges mappings, not %s", v.kind)
	}
}

// set adds a field; of duplicate keys the last wins, in the place of the first.
func (v *value) set(f field) {
	for i := range v.fields {
		if v.fields[i].name == f.name {
			v.fields[i] = f
			return
		}
	}
	v.fields = append(v.fields, f)
}

func (v *value) get(name string) *value {
	for i := range v.fields {
		if v.fields[i].name == name {
			return v.fields[i].value
		}
	}
	return nil
}

// python is Python's str() of a scalar: what cloud-init makes of a value that
// it needs as text.
func (v *value) python() string {
	switch v.kind {
	case kindNull:
		return "None"
	case kindBool:
		if v.truth {
			return "True"
		}
		return "False"
	case kindInt:
		return strconv.FormatInt(v.number, 10)
	case kindFloat:
		form := byte('f')
		if abs := math.Abs(v.float); abs >= 1e16 || abs < 1e-4 && abs > 0 {
			form = 'e' // where Python changes over
		}
		text := strconv.FormatFloat(v.float, form, -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		return strings.NewReplacer("+Inf", "inf", "-Inf", "-inf", "NaN", "nan").Replace(text)
	default:
		return v.text
	}
}

// truthy is Python's bool() of a value.
func (v *value) truthy() bool {
	switch v.kind {
	case kindNull:
		return false
	case kindBool:
		return v.truth
	case kindInt:
		return v.number != 0
	case kindFloat:
		return v.float != 0
	case kindList:
		return len(v.items) > 0
	case kindMap:
		return len(v.fields) > 0
	default:
		return v.text != ""
	}
}

// isTrue is cloud-init's reading of a boolean option: true in several words.
func (v *value) isTrue() bool {
	if v.kind == kindBool {
		return v.truth
	}
	switch strings.ToLower(strings.TrimSpace(v.python())) {
	case "true", "1", "on", "yes":
		return true
	}
	return false
}

func scalar(n *yaml.Node) (*value, error) {
	v := &value{kind: kindString, line: n.Line, text: n.Value}
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			if v.text == "=" {
				return nil, failure(n.Line, "a plain = has no meaning in YAML; put it in quotes")
			}
			v.resolve()
		}
		err := v.check()
		return v, err
	}
	want := map[string]kind{"!!null": kindNull, "!!int": kindInt, "!!float": kindFloat, "!!bool": kindBool, "!!timestamp": kindTime}
	switch k, known := want[n.Tag]; {
	case n.Tag == "!!str" || n.Tag == "!":
		return v, nil
	case n.Tag == "!!binary":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil {
			return nil, failure(n.Line, "bad base64 behind !!binary: %v", err)
		}
		v.kind, v.text = kindBinary, string(raw)
		return v, nil
	case known:
		v.resolve()
		if v.kind != k {
			return nil, failure(n.Line, "%q is not what the YAML tag %s says", n.Value, n.Tag)
		}
		err := v.check()
		return v, err
	}
	return nil, failure(n.Line, "the YAML tag %s is unknown", n.Tag)
}

func (v *value) check() error {
	if v.kind == kindInt {
		if _, err := yamlInt(v.text); err != nil {
			return failure(v.line, "the number %s is out of range", v.text)
		}
	}
	return nil
}
