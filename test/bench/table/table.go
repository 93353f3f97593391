package table

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Section has the figures of one run of a scenario.
type Section struct {
	// Scenario is its name, one word; Title is what it is about.
	Scenario, Title string
	// Command reproduces the figures.
	Command string
	// Machine and Commit say of what the figures are; Date is when they were taken.
	Machine, Commit string
	Date            time.Time
	Rows            []Row
	// Notes are what one has to know to read the rows, a paragraph each.
	Notes []string
}

// Row is a figure. Empty fields stay blank.
type Row struct {
	// Figure says what was measured, Value how much, with its unit.
	Figure, Value string
	// Bare is the same measured without this project, in the same run, and Ratio how many times as much Value is.
	Bare, Ratio string
	// Target is what was to be reached; Missed tells that it was not.
	Target string
	Missed bool
}

// markers enclose a section in a document. They are comments in Markdown.
func (s Section) markers() (begin, end string) {
	return fmt.Sprintf("<!-- begin %s -->\n", s.Scenario), fmt.Sprintf("<!-- end %s -->\n", s.Scenario)
}

// String returns the section in Markdown.
func (s Section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n```sh\n%s\n```\n\n", s.Title, s.Command)
	b.WriteString("| Figure | Measured | Bare | Ratio | Target | |\n|---|---|---|---|---|---|\n")
	for _, r := range s.Rows {
		verdict := ""
		switch {
		case r.Missed:
			verdict = "**missed**"
		case r.Target != "":
			verdict = "met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			cell(r.Figure), cell(r.Value), cell(r.Bare), cell(r.Ratio), cell(r.Target), verdict)
	}
	for _, note := range s.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	fmt.Fprintf(&b, "\nMeasured on %s at commit %s: %s.\n", s.Date.UTC().Format(time.DateOnly), s.Commit, s.Machine)
	return b.String()
}

// cell keeps text in its cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

// Replace puts the section into a document, in place of the one of the same scenario. The document says by its markers
// where that is.
func (s Section) Replace(document string) (string, error) {
	begin, end := s.markers()
	before, rest, ok := strings.Cut(document, begin)
	if !ok {
		return "", fmt.Errorf("writing the figures of %s: the document has no line %q", s.Scenario, strings.TrimSpace(begin))
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("writing the figures of %s: the document has no line %q after its beginning", s.Scenario, strings.TrimSpace(end))
	}
	if strings.Contains(after, begin) {
		return "", errors.New("writing the figures of " + s.Scenario + ": the document has two places for them")
	}
	return before + begin + s.String() + end + after, nil
}
