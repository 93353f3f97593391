package bootstrap

import "fmt"

// ParseError is bootstrap data that cannot be executed. Nothing of a document
// with such an error is carried out.
type ParseError struct {
	// Line counts from 1 within the document, or is 0 when no line is to blame.
	Line int
	// Rendered is true when Line counts in the output of the jinja template.
	Rendered bool
	Reason   string
}

func (e *ParseError) Error() string { return position(e.Line, e.Rendered) + e.Reason }

// Warning is a part of bootstrap data that has no effect, or one other than
// its author may expect.
type Warning struct {
	Line     int
	Rendered bool
	Text     string
}

func (w Warning) String() string { return position(w.Line, w.Rendered) + w.Text }

func position(line int, rendered bool) string {
	switch {
	case line == 0:
		return ""
	case rendered:
		return fmt.Sprintf("line %d after jinja: ", line)
	}
	return fmt.Sprintf("line %d: ", line)
}

func failure(line int, format string, args ...any) error {
	return &ParseError{Line: line, Reason: fmt.Sprintf(format, args...)}
}
