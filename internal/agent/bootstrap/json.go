package bootstrap

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxNesting bounds how deep a JSON document may go; Ignition needs 8.
const maxNesting = 64

// jsonReader turns JSON into values with lines, which encoding/json alone does
// not keep.
type jsonReader struct {
	dec   *json.Decoder
	text  string
	at    int
	line  int
	nodes int
}

// parseJSON reads exactly one object. Of duplicate keys JSON readers take the
// first or the last, so they are refused.
func parseJSON(text string) (*value, error) {
	r := &jsonReader{dec: json.NewDecoder(strings.NewReader(text)), text: text, line: 1}
	r.dec.UseNumber()
	root, err := r.read(0)
	if err != nil {
		return nil, err
	}
	if root.kind != kindMap {
		return nil, failure(root.line, "the document is %s, not a JSON object", root.kind)
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, failure(r.line, "something follows the JSON object")
	}
	return root, nil
}

// token reads a token and moves to its line.
func (r *jsonReader) token() (json.Token, error) {
	token, err := r.dec.Token()
	if err != nil {
		at := len(r.text)
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = min(at, int(bad.Offset))
		}
		r.move(at)
		return nil, failure(r.line, "malformed JSON: %v", err)
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

func (r *jsonReader) read(depth int) (*value, error) {
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	if r.nodes++; r.nodes > maxNodes {
		return nil, failure(r.line, "the document has more than %d values", maxNodes)
	}
	if depth > maxNesting {
		return nil, failure(r.line, "the document is nested more than %d deep", maxNesting)
	}
	v := &value{line: r.line}
	switch t := token.(type) {
	case nil:
		v.kind = kindNull
	case bool:
		v.kind, v.truth = kindBool, t
	case string:
		v.kind, v.text = kindString, t
	case json.Number:
		v.kind, v.text = kindFloat, t.String()
		if n, err := strconv.ParseInt(v.text, 10, 64); err == nil {
			v.kind, v.number = kindInt, n
		}
	case json.Delim:
		if t == '{' {
			v.kind = kindMap
			return v, r.object(v, depth)
		}
		v.kind = kindList
		return v, r.list(v, depth)
	}
	return v, nil
}

func (r *jsonReader) object(v *value, depth int) error {
	names := map[string]bool{}
	for r.dec.More() {
		token, err := r.token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok || names[name] {
			return failure(r.line, "the key %q appears twice", name)
		}
		names[name] = true
		line := r.line
		item, err := r.read(depth + 1)
		if err != nil {
			return err
		}
		v.fields = append(v.fields, field{name, line, item})
	}
	_, err := r.token()
	return err
}

func (r *jsonReader) list(v *value, depth int) error {
	for r.dec.More() {
		item, err := r.read(depth + 1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := r.token()
	return err
}

// fields are the keys of an object, each with what reads its value.
type fields map[string]func(v *value, what string)

// object reads an object. Nothing stands for an absent value; an unknown key is
// a warning.
func (d *decoder) object(v *value, what string, known fields) {
	prefix := ""
	if what != "" {
		prefix = what + "."
	}
	for _, f := range d.mapping(v, what) {
		read := known[f.name]
		switch {
		case read == nil:
			d.warn(f.line, "unknown key %q", prefix+f.name)
		case f.value.kind != kindNull:
			read(f.value, prefix+f.name)
		}
	}
}

// flag is a boolean and nothing else.
func (d *decoder) flag(v *value, what string) bool {
	if v.kind != kindBool {
		d.fail(v.line, "%s is %s, not true or false", what, v.kind)
	}
	return v.truth
}

// integer is a whole number within bounds.
func (d *decoder) integer(v *value, what string, limit int64) int {
	if v.kind != kindInt || v.number < 0 || v.number > limit {
		d.fail(v.line, "%s is not a whole number from 0 to %d", what, limit)
		return 0
	}
	return int(v.number)
}

// strings is a list of strings and nothing else.
func (d *decoder) strings(v *value, what string) []string {
	var out []string
	for _, item := range d.list(v, what, maxEntries) {
		out = append(out, d.text(item, what))
	}
	return out
}
