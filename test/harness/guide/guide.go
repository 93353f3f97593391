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

// Block is a block of shell of a page.
type Block struct {
	// Heading is the nearest one above, without its number, and Line the number of the block's first line in the page.
	Heading string
	Line    int
	// Script is what the block has, without the indentation of the list that it is in.
	Script string
}

// First returns the first line.
func (b Block) First() string {
	first, _, _ := strings.Cut(b.Script, "\n")
	return first
}

// Commands returns the commands, each in one line, without here-documents and comments. In a block with output, they are
// behind a dollar sign.
func (b Block) Commands() []string {
	if !strings.HasPrefix(b.Script, prompt) {
		return commands(b.Script)
	}
	var out []string
	for line := range strings.Lines(b.Script) {
		if command, found := strings.CutPrefix(line, prompt); found {
			out = append(out, strings.TrimSpace(command))
		}
	}
	return out
}

// prompt is before commands in blocks with output.
const prompt = "$ "

var (
	title = regexp.MustCompile(`^#+ +([0-9]+\. )?(.*)$`)
	fence = regexp.MustCompile("^( *)```(.*)$")
)

// Blocks returns the blocks of a page in one of the languages of shells, and the numbers of the lines that
// begin blocks without a language.
func Blocks(text string) (shell []Block, plain []int) {
	var current Block
	var lines []string
	inside, isShell, indentation := false, false, ""
	for number, line := range strings.Split(text, "\n") {
		mark := fence.FindStringSubmatch(line)
		switch {
		case mark != nil && !inside:
			inside, indentation, lines = true, mark[1], nil
			current.Line = number + 2
			switch mark[2] {
			case "sh", "bash", "shell", "console":
				isShell = true
			case "":
				plain = append(plain, current.Line)
			}
		case mark != nil:
			if current.Script = strings.Join(lines, "\n"); isShell {
				shell = append(shell, current)
			}
			inside, isShell = false, false
		case inside:
			lines = append(lines, strings.TrimPrefix(line, indentation))
		default:
			if heading := title.FindStringSubmatch(line); heading != nil {
				current.Heading = heading[2]
			}
		}
	}
	return shell, plain
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
