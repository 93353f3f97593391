package bootstrap

import (
	"fmt"
	"strings"
)

// commands decodes runcmd or bootcmd: strings are lines of shell, lists are
// words, nothing is skipped; anything else would cost cloud-init the whole
// list.
func (d *decoder) commands(v *value, what string) []Command {
	var out []Command
	for i, item := range d.list(v, what, maxCommands) {
		name := fmt.Sprintf("%s[%d]", what, i)
		switch item.kind {
		case kindString:
			out = append(out, Command{Shell: item.text})
		case kindNull:
		case kindList:
			c := Command{Args: []string{}}
			for j, word := range item.items {
				if word.kind == kindList || word.kind == kindMap {
					d.fail(word.line, "%s[%d] is %s, not a word", name, j, word.kind)
				}
				c.Args = append(c.Args, word.python())
			}
			out = append(out, c)
		default:
			d.fail(item.line, "%s is %s, neither a string nor a list; a command with \": \" in it needs quotes", name, item.kind)
		}
	}
	for _, c := range out {
		if strings.Contains(c.Shell+strings.Join(c.Args, ""), "\x00") {
			d.fail(v.line, "%s contains a NUL character, which no shell can read", what)
		}
	}
	return out
}

// Script is the one /bin/sh script that cloud-init makes of commands. It does
// not stop at an error: what one command sets or breaks reaches the next.
func Script(commands []Command) string {
	var out strings.Builder
	out.WriteString("#!/bin/sh\n")
	for _, c := range commands {
		out.WriteString(c.String())
		out.WriteByte('\n')
	}
	return out.String()
}

// String is the command as it stands in the script: the words of a list are
// quoted one by one.
func (c Command) String() string {
	if c.Args == nil {
		return c.Shell
	}
	words := make([]string, len(c.Args))
	for i, word := range c.Args {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
