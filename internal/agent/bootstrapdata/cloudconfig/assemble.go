package cloudconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// Parse reads user data in any format of cloud-init. vars are the variables of Jinja
// templates. An error is a *bootstrapdata.ParseError.
func Parse(data []byte, vars bootstrapdata.Variables) (*bootstrapdata.Config, []bootstrapdata.Warning, error) {
	text, err := document.Text(data)
	if err != nil {
		return nil, nil, err
	}
	parts, err := split(text)
	if err != nil {
		return nil, nil, err
	}
	return assemble(parts, vars)
}

// assembly collects the parts of a document.
type assembly struct {
	vars     bootstrapdata.Variables
	roots    []*document.Value // of cloud-config
	merged   *document.Value
	scripts  []bootstrapdata.ScriptFile
	warnings []bootstrapdata.Warning
}

// assemble merges all parts into one Config.
func assemble(parts []part, vars bootstrapdata.Variables) (*bootstrapdata.Config, []bootstrapdata.Warning, error) {
	a := &assembly{vars: vars}
	config := &bootstrapdata.Config{}
	for _, p := range parts {
		c, err := a.add(p)
		if err != nil {
			return nil, nil, bootstrapdata.InPart(p.label, err)
		}
		if c != nil {
			config = c
		}
	}
	if len(a.roots) > 1 {
		// Each part was checked alone before, so that errors name the part.
		d := &decoder{&document.Decoder{}}
		var err error
		if config, err = d.config(a.merged); err != nil {
			return nil, nil, err
		}
	}
	if err := a.sort(config); err != nil {
		return nil, nil, err
	}
	config.Scripts = a.scripts
	config.Sentinel = sentinel(config)
	return config, a.warnings, nil
}

// add reads a part. It returns a Config if the part is cloud-config, else nil.
func (a *assembly) add(p part) (*bootstrapdata.Config, error) {
	d := &decoder{&document.Decoder{}}
	body, kind := p.text, p.mime
	switch {
	case kind == typeJinja:
		var err error
		if body, err = d.render(p.text, a.vars); err != nil {
			return nil, err
		}
		kind = detectType(body)
	case detectType(body) == typeJinja:
		return nil, bootstrapdata.ErrorAt(1, "it is a jinja template of the type %s, which cloud-init would not render; set Content-Type to %s", kind, typeJinja)
	}
	config, err := a.execute(d, p, kind, body)
	for _, w := range d.Warnings {
		w.Part = p.label
		a.warnings = append(a.warnings, w)
	}
	return config, err
}

func (a *assembly) execute(d *decoder, p part, kind, body string) (*bootstrapdata.Config, error) {
	switch kind {
	case typeScript:
		return nil, d.Locate(a.script(d, p.name, body))
	case typeCloudConfig:
		config, err := a.cloudConfig(d, p.merge, body)
		return config, d.Locate(err)
	case "":
		return nil, d.Locate(bootstrapdata.ErrorAt(1, "the header %q is missing; cloud-init would ignore it too", headerCloudConfig))
	}
	what := describeType(kind)
	if what == "" {
		what = "of the type " + kind
	}
	return nil, d.Locate(bootstrapdata.ErrorAt(1, "the document is %s, which this agent does not execute; write cloud-config that starts with %q, or a script", what, headerCloudConfig))
}

func (a *assembly) cloudConfig(d *decoder, merge, body string) (*bootstrapdata.Config, error) {
	root, err := document.ParseYAML(body)
	if err != nil {
		return nil, err
	}
	how, err := mergersOf(root, merge)
	if err != nil {
		return nil, err
	}
	config, err := d.config(root)
	if err != nil {
		return nil, err
	}
	a.roots = append(a.roots, root)
	if a.merged == nil {
		a.merged = &document.Value{Kind: document.Map, Line: root.Line, Fields: slices.Clone(root.Fields)}
		return config, nil
	}
	return config, how.mapping(a.merged, root, "")
}

// script adds a script as cloud-init stores it: unsafe characters are removed from
// its name, and Windows line ends become Unix line ends if the first line has one.
func (a *assembly) script(d *decoder, name, body string) error {
	if !strings.HasPrefix(body, "#!") {
		return bootstrapdata.ErrorAt(1, "it is a script, but does not start with \"#!\", so that no program is known to run it")
	}
	first, _, _ := strings.Cut(body, "\n")
	if strings.HasSuffix(first, "\r") {
		body = strings.ReplaceAll(body, "\r\n", "\n")
		first = strings.TrimSuffix(first, "\r")
	}
	if program := strings.TrimLeft(first[2:], " \t"); !strings.HasPrefix(program, "/") {
		return bootstrapdata.ErrorAt(1, "its first line %q does not name a program by its path", first)
	}
	clean := strings.TrimSpace(strings.Map(func(c rune) rune {
		switch {
		case c == '/':
			return '_'
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.ContainsRune("_-.()", c):
			return c
		}
		return -1
	}, name))
	if strings.Trim(clean, ".") == "" || len(clean) > 128 {
		return bootstrapdata.ErrorAt(0, "%q is not a name for a script", name)
	}
	if clean != name {
		d.Warn(0, "the script %q is called %q", name, clean)
	}
	if slices.ContainsFunc(a.scripts, func(s bootstrapdata.ScriptFile) bool { return s.Name == clean }) {
		return bootstrapdata.ErrorAt(0, "there are two scripts named %q; cloud-init would run the last only", clean)
	}
	a.scripts = append(a.scripts, bootstrapdata.ScriptFile{Name: clean, Body: body})
	return nil
}

func (a *assembly) sort(c *bootstrapdata.Config) error {
	slices.SortFunc(a.scripts, func(x, y bootstrapdata.ScriptFile) int { return cmp.Compare(x.Name, y.Name) })
	for _, s := range a.scripts {
		if s.Name == bootstrapdata.RuncmdScript && len(c.Commands) > 0 {
			return bootstrapdata.ErrorAt(0, "a script is named %q, which is the name of the script that runcmd makes; rename it", bootstrapdata.RuncmdScript)
		}
	}
	return nil
}
