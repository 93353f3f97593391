package rewrite

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

// edit replaces the value of a scalar in a document.
type edit struct {
	node  *yaml.Node
	value string
}

// parse returns a document's top-level mapping, or nil if it has none.
func parse(text []byte) (*yaml.Node, error) {
	var document yaml.Node
	if err := kube.Decode(text, &document); err != nil {
		return nil, err
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, nil
	}
	if root := document.Content[0]; root.Kind == yaml.MappingNode {
		return root, nil
	}
	return nil, nil
}

// field returns the value of a field in a mapping, or nil.
func field(mapping *yaml.Node, name string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// replace applies edits to a text at the positions that the YAML library
// reports. Encoding the document again would lose its comments and its format.
func replace(text []byte, edits []edit) ([]byte, error) {
	slices.SortFunc(edits, func(a, b edit) int {
		if a.node.Line != b.node.Line {
			return b.node.Line - a.node.Line
		}
		return b.node.Column - a.node.Column
	})
	// From the end of the text, so that the positions of other edits stay valid.
	for _, e := range edits {
		at, err := offset(text, e.node)
		if err != nil {
			return nil, err
		}
		old, quote := written(e.node)
		if old == "" || !bytes.HasPrefix(text[at:], []byte(old)) {
			return nil, fmt.Errorf("line %d has a value that is not written plainly: write %q there", e.node.Line, e.value)
		}
		if quote == "" && strings.ContainsAny(e.value, "[]") {
			quote = `"`
		}
		text = slices.Concat(text[:at], []byte(quote+e.value+quote), text[at+len(old):])
	}
	return text, nil
}

// written returns the text of a scalar in its document, if it has no escapes,
// and its quote character. It returns "" for a scalar that cannot be replaced.
func written(node *yaml.Node) (text, quote string) {
	switch {
	case node.Kind != yaml.ScalarNode || node.Anchor != "" || node.Style&yaml.TaggedStyle != 0:
		return "", ""
	case node.Style&yaml.DoubleQuotedStyle != 0:
		quote = `"`
	case node.Style&yaml.SingleQuotedStyle != 0:
		quote = "'"
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return "", ""
	}
	return quote + node.Value + quote, quote
}

// offset returns the byte offset of a node. Lines and columns start at one, and
// columns count characters.
func offset(text []byte, node *yaml.Node) (int, error) {
	at := 0
	for line := 1; line < node.Line; line++ {
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			return 0, fmt.Errorf("there is no line %d", node.Line)
		}
		at += end + 1
	}
	for column := 1; column < node.Column; column++ {
		_, size := utf8.DecodeRune(text[at:])
		if size == 0 || text[at] == '\n' {
			return 0, fmt.Errorf("line %d has no column %d", node.Line, node.Column)
		}
		at += size
	}
	return at, nil
}
