package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// document is the part of an OpenAPI document that the program uses.
type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

// operation is a method of a path.
type operation struct {
	ID          string `json:"operationId"`
	RequestBody *struct {
		Content map[string]struct {
			Schema *schema `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`

	method, path string
}

// schema describes a value of a body.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       string             `json:"type"`
	Format     string             `json:"format"`
	Enum       []string           `json:"enum"`
	Pattern    string             `json:"pattern"`
	Encoding   string             `json:"contentEncoding"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	MaxItems   int                `json:"maxItems"`
	MaxLength  int                `json:"maxLength"`
	Maximum    int64              `json:"maximum"`
}

// documentPath is where the manager serves the document, to every key.
const documentPath = "/v1/openapi.json"

func parseDocument(raw []byte) (*document, error) {
	d := &document{}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	return d, nil
}

// operation returns the operation with that ID.
func (d *document) operation(id string) (operation, error) {
	for path, methods := range d.Paths {
		for method, o := range methods {
			if o.ID == id {
				o.method, o.path = strings.ToUpper(method), path
				return o, nil
			}
		}
	}
	return operation{}, fmt.Errorf("the OpenAPI document has no operation %q", id)
}

// body returns the schema of the operation's body.
func (o operation) body() *schema {
	if o.RequestBody == nil {
		return nil
	}
	return o.RequestBody.Content["application/json"].Schema
}

// largest makes values that are as large as a schema allows, or larger.
type largest struct {
	document *document
	// text is repeated to fill strings of at most length bytes.
	text   string
	length int
	// items bounds lists, lists those of a name.
	items int
	lists map[string]int
}

// of returns a value of the schema of a property. Each value differs from the one before.
func (l largest) of(name string, s *schema) any {
	if referred, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return l.of(name, l.document.Components.Schemas[referred])
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[rand.IntN(len(s.Enum))]
	case s.Type == "object":
		out := map[string]any{}
		for name, property := range s.Properties {
			out[name] = l.of(name, property)
		}
		return out
	case s.Type == "array":
		return l.list(name, s)
	case s.Type == "integer":
		if s.Maximum > 0 {
			return s.Maximum
		}
		return rand.Int32()
	case s.Type == "boolean":
		return rand.IntN(2) == 0
	case s.Format == "date-time":
		return time.Now().Add(time.Duration(rand.Int32N(1000000)) * time.Second).UTC().Format(time.RFC3339)
	case strings.Contains(s.Pattern, "[0-9a-f]"):
		return fmt.Sprintf("%016x", rand.Uint64())
	case s.Encoding == "base64":
		return []byte(l.string(s.MaxLength))
	default:
		return l.string(s.MaxLength)
	}
}

func (l largest) list(name string, s *schema) []any {
	count := l.items
	if n, ok := l.lists[name]; ok {
		count = n
	}
	if s.MaxItems > 0 {
		count = min(count, s.MaxItems)
	}
	out := make([]any, count)
	for i := range out {
		out[i] = l.of(name, s.Items)
	}
	return out
}

// string returns a text of that length, or of the greatest if it is 0, with a random beginning.
func (l largest) string(length int) string {
	if length == 0 || length > l.length {
		length = l.length
	}
	unique := fmt.Sprintf("%08x", rand.Uint32())
	return (unique + strings.Repeat(l.text, length/len(l.text)+1))[:length]
}

// body returns the largest body of an operation.
func (l largest) body(operation string) (map[string]any, error) {
	o, err := l.document.operation(operation)
	if err != nil {
		return nil, err
	}
	body, ok := l.of("", o.body()).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the body of operation %s is no object", operation)
	}
	return body, nil
}
