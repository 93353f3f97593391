package document

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
)

// maxNesting limits the depth of a JSON document. Ignition needs 8.
const maxNesting = 64

// jsonReader turns JSON into values with lines. encoding/json alone does not keep
// lines.
type jsonReader struct {
	dec   *json.Decoder
	text  string
	at    int
	line  int
	nodes int
}

// ParseJSON reads exactly one object. Duplicate keys are an error, because JSON
// readers disagree on which of them counts.
func ParseJSON(text string) (*Value, error) {
	r := &jsonReader{dec: json.NewDecoder(strings.NewReader(text)), text: text, line: 1}
	r.dec.UseNumber()
	root, err := r.read(0)
	if err != nil {
		return nil, err
	}
	if root.Kind != Map {
		return nil, bootstrapdata.ErrorAt(root.Line, "the document is %s, not a JSON object", root.Kind)
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bootstrapdata.ErrorAt(r.line, "something follows the JSON object")
	}
	return root, nil
}

// token reads a token and advances line to it.
func (r *jsonReader) token() (json.Token, error) {
	token, err := r.dec.Token()
	if err != nil {
		at := len(r.text)
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = min(at, int(bad.Offset))
		}
		r.move(at)
		return nil, bootstrapdata.ErrorAt(r.line, "malformed JSON: %v", err)
	}
	r.move(int(r.dec.InputOffset()))
	return token, nil
}

func (r *jsonReader) move(to int) {
	if to > r.at {
		r.line += strings.Count(r.text[r.at:to], "\n")
		r.at = to
	}
}

func (r *jsonReader) read(depth int) (*Value, error) {
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	if r.nodes++; r.nodes > maxNodes {
		return nil, bootstrapdata.ErrorAt(r.line, "the document has more than %d values", maxNodes)
	}
	if depth > maxNesting {
		return nil, bootstrapdata.ErrorAt(r.line, "the document is nested more than %d deep", maxNesting)
	}
	v := &Value{Line: r.line}
	switch t := token.(type) {
	case nil:
		v.Kind = Null
	case bool:
		v.Kind, v.Bool = Bool, t
	case string:
		v.Kind, v.Text = String, t
	case json.Number:
		v.Kind, v.Text = Float, t.String()
		if n, err := strconv.ParseInt(v.Text, 10, 64); err == nil {
			v.Kind, v.Int = Int, n
		}
	case json.Delim:
		if t == '{' {
			v.Kind = Map
			return v, r.object(v, depth)
		}
		v.Kind = List
		return v, r.list(v, depth)
	}
	return v, nil
}

func (r *jsonReader) object(v *Value, depth int) error {
	names := map[string]bool{}
	for r.dec.More() {
		token, err := r.token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok || names[name] {
			return bootstrapdata.ErrorAt(r.line, "the key %q appears twice", name)
		}
		names[name] = true
		line := r.line
		item, err := r.read(depth + 1)
		if err != nil {
			return err
		}
		v.Fields = append(v.Fields, Field{name, line, item})
	}
	_, err := r.token()
	return err
}

func (r *jsonReader) list(v *Value, depth int) error {
	for r.dec.More() {
		item, err := r.read(depth + 1)
		if err != nil {
			return err
		}
		v.Items = append(v.Items, item)
	}
	_, err := r.token()
	return err
}
