package bootstrapdata

import (
	"strings"
)

// Script returns the single /bin/sh script that cloud-init makes of commands. The
// script does not stop at an error, and commands share variables and directory.
func Script(commands []Command) string {
	var out strings.Builder
	out.WriteString("#!/bin/sh\n")
	for _, c := range commands {
		out.WriteString(c.String())
		out.WriteByte('\n')
	}
	return out.String()
}

// String returns the command as the script contains it: each word of a list is
// quoted.
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

// RuncmdScript is the name of the script that cloud-init makes of runcmd. Scripts
// run in the order of their names.
const RuncmdScript = "runcmd"
