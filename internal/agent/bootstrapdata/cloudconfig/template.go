package cloudconfig

import (
	"errors"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/jinja"
)

// render renders a Jinja template and records how lines of the output relate to
// lines of the document. Other texts are returned unchanged.
func (d *decoder) render(text string, vars bootstrapdata.Variables) (string, error) {
	if !strings.HasPrefix(strings.ToLower(strings.TrimLeft(text, " \t\r\n")), headerJinja) {
		return text, nil
	}
	header, rest, _ := strings.Cut(text, "\n")
	if strings.TrimSpace(header) == "" {
		return "", bootstrapdata.ErrorAt(1, "%q has to be the first line", headerJinja)
	}
	if strings.ToLower(strings.TrimSpace(header)) != headerJinja {
		return "", bootstrapdata.ErrorAt(1, "unknown template header %q; write %q", strings.TrimSpace(header), headerJinja)
	}
	out, missing, err := jinja.Render(rest, vars)
	if err != nil {
		if at, ok := errors.AsType[*jinja.Error](err); ok {
			return "", bootstrapdata.ErrorAt(at.Line+1, "jinja: %s", at.Reason)
		}
		return "", bootstrapdata.ErrorAt(0, "rendering jinja: %v", err)
	}
	d.Offset = 1
	d.Rendered = strings.Count(out, "\n") != strings.Count(rest, "\n")
	for _, name := range missing {
		d.Warn(0, "the jinja variable %q is undefined; %s%s stands in its place", name, jinja.MissingPrefix, name)
	}
	return out, nil
}
