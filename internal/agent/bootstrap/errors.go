package bootstrap

import (
	"errors"
	"fmt"
)

// ParseError is bootstrap data that cannot be executed. Nothing of a document
// with such an error is carried out.
type ParseError struct {
	// Part names the part of a MIME message that is to blame, or is "".
	Part string
	// Line counts from 1 within the document, or within the decoded Part; it is
	// 0 when no line is to blame.
	Line int
	// Rendered is true when Line counts in the output of the jinja template.
	Rendered bool
	Reason   string
}

func (e *ParseError) Error() string { return position(e.Part, e.Line, e.Rendered) + e.Reason }

// Warning is a part of bootstrap data that has no effect, or one other than
// its author may expect.
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

func failure(line int, format string, args ...any) error {
	return &ParseError{Line: line, Reason: fmt.Sprintf(format, args...)}
}

// within names the part that an error is about.
func within(label string, err error) error {
	if at, ok := errors.AsType[*ParseError](err); ok && at.Part == "" {
		at.Part = label
	}
	return err
}
