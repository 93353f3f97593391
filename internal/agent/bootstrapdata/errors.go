package bootstrapdata

import (
	"errors"
	"fmt"
)

// ParseError says why bootstrap data cannot be executed. A document with such an
// error is not executed at all.
type ParseError struct {
	// Part names the faulty part of a MIME message, or is "".
	Part string
	// Line counts from 1 within the document, or within the decoded Part. It is 0
	// when the error concerns no single line.
	Line int
	// Rendered is true when Line counts in the output of the Jinja template.
	Rendered bool
	Reason   string
}

func (e *ParseError) Error() string { return position(e.Part, e.Line, e.Rendered) + e.Reason }

// Warning describes a part of bootstrap data that has no effect, or a different
// effect than its author may expect.
type Warning struct {
	Part     string
	Line     int
	Rendered bool
	Text     string
}

func (w Warning) String() string { return position(w.Part, w.Line, w.Rendered) + w.Text }

func position(part string, line int, rendered bool) string {
	if part != "" {
		part += ": "
	}
	switch {
	case line == 0:
		return part
	case rendered:
		return fmt.Sprintf("%sline %d after jinja: ", part, line)
	}
	return fmt.Sprintf("%sline %d: ", part, line)
}

// ErrorAt returns a ParseError for a line. Line 0 means the whole document.
func ErrorAt(line int, format string, args ...any) error {
	return &ParseError{Line: line, Reason: fmt.Sprintf(format, args...)}
}

// InPart adds the label of a MIME part to a ParseError that has none.
func InPart(label string, err error) error {
	if at, ok := errors.AsType[*ParseError](err); ok && at.Part == "" {
		at.Part = label
	}
	return err
}
