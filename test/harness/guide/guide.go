package guide

import (
	"errors"
	"regexp"
	"strings"
)

// Step is a step of a guide.
type Step struct {
	// Title is its heading, without the number, and Text what is below.
	Title, Text string
	// Scripts are its blocks of shell.
	Scripts []string
}

// OnEachHost reports whether the step is done once for each host.
func (s Step) OnEachHost() bool { return strings.Contains(s.Title, "each host") }

// Commands returns the commands of all scripts, each in one line, without here-documents and
// comments.
func (s Step) Commands() []string {
	var out []string
	for _, script := range s.Scripts {
		out = append(out, commands(script)...)
	}
	return out
}

var (
	heading = regexp.MustCompile(`^[0-9]+\. `)
	block   = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```")
)

// Steps returns the steps of the text of a guide. Other sections than Steps have none.
func Steps(text string) ([]Step, error) {
	_, text, found := strings.Cut(text, "\n## Steps\n")
	if !found {
		return nil, errors.New("the guide has no section Steps")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var out []Step
	for _, part := range strings.Split(text, "\n### ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		s := Step{Title: heading.ReplaceAllString(title, ""), Text: body}
		for _, match := range block.FindAllStringSubmatch(body, -1) {
			s.Scripts = append(s.Scripts, match[1])
		}
		out = append(out, s)
	}
	return out, nil
}

func commands(script string) []string {
	script = strings.ReplaceAll(script, "\\\n", " ")
	var out []string
	inDocument := false
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		switch {
		case inDocument:
			inDocument = line != "EOF"
		case line != "" && !strings.HasPrefix(line, "#"):
			out = append(out, line)
			inDocument = strings.Contains(line, "<<EOF")
		}
	}
	return out
}
