package cloudconfig

import (
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// commands decodes runcmd or bootcmd. A string is a line of shell, a list is the
// words of a command, null is skipped. Any other type makes cloud-init drop the
// whole list, so it is an error.
func (d *decoder) commands(v *document.Value, what string) []bootstrapdata.Command {
	var out []bootstrapdata.Command
	for i, item := range d.List(v, what, document.MaxCommands) {
		name := fmt.Sprintf("%s[%d]", what, i)
		switch item.Kind {
		case document.String:
			out = append(out, bootstrapdata.Command{Shell: item.Text})
		case document.Null:
		case document.List:
			c := bootstrapdata.Command{Args: []string{}}
			for j, word := range item.Items {
				if word.Kind == document.List || word.Kind == document.Map {
					d.Fail(word.Line, "%s[%d] is %s, not a word", name, j, word.Kind)
				}
				c.Args = append(c.Args, word.PythonString())
			}
			out = append(out, c)
		default:
			d.Fail(item.Line, "%s is %s, neither a string nor a list; a command with \": \" in it needs quotes", name, item.Kind)
		}
	}
	for _, c := range out {
		if strings.Contains(c.Shell+strings.Join(c.Args, ""), "\x00") {
			d.Fail(v.Line, "%s contains a NUL character, which no shell can read", what)
		}
	}
	return out
}
