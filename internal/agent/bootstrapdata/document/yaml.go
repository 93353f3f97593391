package document

import (
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
)

// maxNodes limits a document after its aliases are resolved, so that a few lines
// cannot expand without limit.
const maxNodes = 1 << 18

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// ParseYAML reads exactly one document whose root is a mapping.
func ParseYAML(text string) (*Value, error) {
	if err := checkCharacters(text); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, bootstrapdata.ErrorAt(0, "the document holds nothing but comments")
		}
		return nil, yamlError(text, err)
	}
	switch err := dec.Decode(new(yaml.Node)); {
	case err == nil:
		return nil, bootstrapdata.ErrorAt(0, "the document holds several YAML documents separated by ---; only one is executed")
	case !errors.Is(err, io.EOF):
		return nil, yamlError(text, err)
	}
	c := &converter{open: map[*yaml.Node]bool{}}
	root, err := c.convert(doc.Content[0])
	if err != nil {
		return nil, err
	}
	switch {
	case root.Kind == Null || root.Kind == Map && len(root.Fields) == 0:
		return nil, bootstrapdata.ErrorAt(0, "the document holds nothing to do")
	case root.Kind != Map:
		return nil, bootstrapdata.ErrorAt(root.Line, "the document is %s, not a mapping", root.Kind)
	}
	return root, nil
}

// yamlError finds the faulty line. The library names the line where the enclosing
// structure began. The fault is in the last line of the shortest prefix of the text
// that fails with the same error.
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
	return bootstrapdata.ErrorAt(line, "malformed YAML: %s", strings.TrimPrefix(reason, "yaml: "))
}

// checkCharacters returns an error for a character that YAML 1.1 does not allow.
func checkCharacters(text string) error {
	line := 1
	for _, c := range text {
		switch {
		case c == '\n':
			line++
		case c == '\t' || c == '\r' || c >= 0x20 && c <= 0x7e || c == 0x85 || c >= 0xa0 && c != 0xfffe && c != 0xffff:
		default:
			return bootstrapdata.ErrorAt(line, "the control character %U is not allowed in YAML; write it as an escape in double quotes", c)
		}
	}
	return nil
}

type converter struct {
	nodes int
	open  map[*yaml.Node]bool
}

func (c *converter) convert(n *yaml.Node) (*Value, error) {
	c.nodes++
	if c.nodes > maxNodes {
		return nil, bootstrapdata.ErrorAt(n.Line, "the document has more than %d values", maxNodes)
	}
	if c.open[n] {
		return nil, bootstrapdata.ErrorAt(n.Line, "an alias contains itself")
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
		return nil, bootstrapdata.ErrorAt(n.Line, "the YAML tag %s is unknown", n.Tag)
	}
	v := &Value{Kind: List, Line: n.Line}
	if n.Kind == yaml.MappingNode {
		v.Kind = Map
		return v, c.mapping(n, v)
	}
	for _, item := range n.Content {
		converted, err := c.convert(item)
		if err != nil {
			return nil, err
		}
		v.Items = append(v.Items, converted)
	}
	return v, nil
}

func (c *converter) mapping(n *yaml.Node, v *Value) error {
	var merged []Field
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
		if name.Kind == List || name.Kind == Map {
			return bootstrapdata.ErrorAt(key.Line, "the key of a mapping is %s", name.Kind)
		}
		v.Set(Field{name.PythonString(), key.Line, val})
	}
	for _, f := range merged {
		if v.Get(f.Name) == nil {
			v.Set(f)
		}
	}
	return nil
}

func mergeFields(v *Value) ([]Field, error) {
	switch v.Kind {
	case Map:
		return v.Fields, nil
	case List:
		var all []Field
		for _, item := range v.Items {
			if item.Kind != Map {
				return nil, bootstrapdata.ErrorAt(item.Line, "<< merges mappings, not %s", item.Kind)
			}
			all = append(all, item.Fields...)
		}
		return all, nil
	default:
		return nil, bootstrapdata.ErrorAt(v.Line, "<< merges mappings, not %s", v.Kind)
	}
}

func scalar(n *yaml.Node) (*Value, error) {
	v := &Value{Kind: String, Line: n.Line, Text: n.Value}
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			if v.Text == "=" {
				return nil, bootstrapdata.ErrorAt(n.Line, "a plain = has no meaning in YAML; put it in quotes")
			}
			v.resolve()
		}
		err := v.check()
		return v, err
	}
	want := map[string]Kind{"!!null": Null, "!!int": Int, "!!float": Float, "!!bool": Bool, "!!timestamp": Time}
	switch k, known := want[n.Tag]; {
	case n.Tag == "!!str" || n.Tag == "!":
		return v, nil
	case n.Tag == "!!binary":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil {
			return nil, bootstrapdata.ErrorAt(n.Line, "bad base64 behind !!binary: %v", err)
		}
		v.Kind, v.Text = Binary, string(raw)
		return v, nil
	case known:
		v.resolve()
		if v.Kind != k {
			return nil, bootstrapdata.ErrorAt(n.Line, "%q is not what the YAML tag %s says", n.Value, n.Tag)
		}
		err := v.check()
		return v, err
	}
	return nil, bootstrapdata.ErrorAt(n.Line, "the YAML tag %s is unknown", n.Tag)
}

func (v *Value) check() error {
	if v.Kind == Int {
		if _, err := yamlInt(v.Text); err != nil {
			return bootstrapdata.ErrorAt(v.Line, "the number %s is out of range", v.Text)
		}
	}
	return nil
}
