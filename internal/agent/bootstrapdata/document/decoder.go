package document

import (
	"errors"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
)

// Limits of one document. Documents of Cluster API providers stay far below them.
const (
	MaxFiles    = 4096
	MaxCommands = 4096
	MaxEntries  = 256
)

// Decoder turns values into Go types. It keeps the first error. After an error its
// methods still return values, so that callers need no check after each call, but
// the results must be discarded.
//
// The parameter what of the methods is the path of a value in the document, such as
// "write_files[0].path". It appears in errors.
type Decoder struct {
	// Offset is the number of lines that were removed before the YAML text.
	// Rendered is true when rendering moved lines in other ways, too.
	Offset   int
	Rendered bool
	Warnings []bootstrapdata.Warning
	Err      error
}

// Locate changes the line of an error from the YAML text to the whole document.
func (d *Decoder) Locate(err error) error {
	var at *bootstrapdata.ParseError
	if errors.As(err, &at) && at.Line > 0 {
		at.Rendered = d.Rendered
		if !d.Rendered {
			at.Line += d.Offset
		}
	}
	return err
}

// Fail records an error unless there is an earlier one. Line 0 means no line.
func (d *Decoder) Fail(line int, format string, args ...any) {
	if d.Err == nil {
		d.Err = bootstrapdata.ErrorAt(line, format, args...)
	}
}

// Warn records a warning. Line 0 means no line.
func (d *Decoder) Warn(line int, format string, args ...any) {
	w := bootstrapdata.Warning{Line: line, Rendered: d.Rendered, Text: fmt.Sprintf(format, args...)}
	if line > 0 && !d.Rendered {
		w.Line += d.Offset
	}
	d.Warnings = append(d.Warnings, w)
}

// List returns the items of a list. Null counts as an empty list.
func (d *Decoder) List(v *Value, what string, limit int) []*Value {
	switch {
	case v.Kind == Null:
		return nil
	case v.Kind != List:
		d.Fail(v.Line, "%s is %s, not a list", what, v.Kind)
	case len(v.Items) > limit:
		d.Fail(v.Line, "%s has %d entries, more than the %d allowed", what, len(v.Items), limit)
	default:
		return v.Items
	}
	return nil
}

// Mapping returns the fields of a mapping. Null counts as an empty mapping.
func (d *Decoder) Mapping(v *Value, what string) []Field {
	switch {
	case v.Kind == Null:
		return nil
	case v.Kind != Map:
		d.Fail(v.Line, "%s is %s, not a mapping", what, v.Kind)
	case len(v.Fields) > MaxEntries:
		d.Fail(v.Line, "%s has %d entries, more than the %d allowed", what, len(v.Fields), MaxEntries)
	default:
		return v.Fields
	}
	return nil
}

// Text returns a string and fails for every other type.
func (d *Decoder) Text(v *Value, what string) string {
	if v.Kind != String {
		d.Fail(v.Line, "%s is %s, not a string; put it in quotes", what, v.Kind)
	}
	return v.Text
}

// ScalarText returns any scalar as Python prints it.
func (d *Decoder) ScalarText(v *Value, what string) string {
	if v.Kind == List || v.Kind == Map || v.Kind == Null {
		d.Fail(v.Line, "%s is %s, not a string", what, v.Kind)
		return ""
	}
	return v.PythonString()
}

// ScalarTexts returns a list of scalars as Python prints them.
func (d *Decoder) ScalarTexts(v *Value, what string) []string {
	var out []string
	for i, item := range d.List(v, what, MaxEntries) {
		out = append(out, d.ScalarText(item, fmt.Sprintf("%s[%d]", what, i)))
	}
	return out
}

// Keys are the known keys of an object, with the function that reads the value.
type Keys map[string]func(v *Value, what string)

// Object reads an object. Null counts as an absent value. An unknown key is a
// warning.
func (d *Decoder) Object(v *Value, what string, known Keys) {
	prefix := ""
	if what != "" {
		prefix = what + "."
	}
	for _, f := range d.Mapping(v, what) {
		read := known[f.Name]
		switch {
		case read == nil:
			d.Warn(f.Line, "unknown key %q", prefix+f.Name)
		case f.Value.Kind != Null:
			read(f.Value, prefix+f.Name)
		}
	}
}

// Flag returns a boolean and fails for every other type.
func (d *Decoder) Flag(v *Value, what string) bool {
	if v.Kind != Bool {
		d.Fail(v.Line, "%s is %s, not true or false", what, v.Kind)
	}
	return v.Bool
}

// Integer returns a whole number from 0 to limit.
func (d *Decoder) Integer(v *Value, what string, limit int64) int {
	if v.Kind != Int || v.Int < 0 || v.Int > limit {
		d.Fail(v.Line, "%s is not a whole number from 0 to %d", what, limit)
		return 0
	}
	return int(v.Int)
}

// Strings returns a list of strings and fails for every other type.
func (d *Decoder) Strings(v *Value, what string) []string {
	var out []string
	for _, item := range d.List(v, what, MaxEntries) {
		out = append(out, d.Text(item, what))
	}
	return out
}

// MaxContent limits the decoded content of all files together, in bytes.
const MaxContent = 64 << 20
