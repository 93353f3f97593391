package table

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Section has the figures of one run of a scenario.
type Section struct {
	// Scenario is its name, one word; Title is its heading.
	Scenario, Title string
	// Command reproduces the figures.
	Command string
	// Machine and Commit are what was measured; Date is the day of the measurement.
	Machine, Commit string
	Date            time.Time
	Rows            []Row
	// Notes explain the rows, a paragraph each.
	Notes []string
}

// Row is a figure. Empty fields stay blank.
type Row struct {
	// Figure is the name of the figure, Value its value with a unit.
	Figure, Value string
	// Bare is the baseline, measured in the same run, and Ratio is Value divided by Bare.
	Bare, Ratio string
	// Target is the target; Missed reports that it was missed.
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

// Replace replaces the section of the same scenario in a document. Markers enclose it there.
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
