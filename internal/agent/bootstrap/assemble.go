package bootstrap

import (
	"cmp"
	"slices"
	"strings"
)

// runcmdName is what cloud-init calls the script of runcmd, among others that
// it runs in the order of their names.
const runcmdName = "runcmd"

// assembly collects the parts of a document.
type assembly struct {
	vars     Variables
	roots    []*value // of cloud-config
	merged   *value
	scripts  []ScriptFile
	warnings []Warning
}

// assemble makes one Config of all parts.
func assemble(parts []part, vars Variables) (*Config, []Warning, error) {
	a := &assembly{vars: vars}
	config := &Config{}
	for _, p := range parts {
		c, err := a.add(p)
		if err != nil {
			return nil, nil, within(p.label, err)
		}
		if c != nil {
			config = c
		}
	}
	if len(a.roots) > 1 {
		// Every part was checked alone, so that errors name it.
		d := &decoder{}
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

// add reads a part. It returns the Config of one with cloud-config.
func (a *assembly) add(p part) (*Config, error) {
	d := &decoder{}
	body, kind := p.text, p.mime
	switch {
	case kind == typeJinja:
		var err error
		if body, err = d.render(p.text, a.vars); err != nil {
			return nil, err
		}
		kind = sniff(body)
	case sniff(body) == typeJinja:
		return nil, failure(1, "it is a jinja template of the type %s, which cloud-init would not render; set Content-Type to %s", kind, typeJinja)
	}
	config, err := a.execute(d, p, kind, body)
	for _, w := range d.warnings {
		w.Part = p.label
		a.warnings = append(a.warnings, w)
	}
	return config, err
}

func (a *assembly) execute(d *decoder, p part, kind, body string) (*Config, error) {
	switch kind {
	case typeScript:
		return nil, d.place(a.script(d, p.name, body))
	case typeCloudConfig:
		config, err := a.cloudConfig(d, p.merge, body)
		return config, d.place(err)
	case "":
		return nil, d.place(failure(1, "the header %q is missing; cloud-init would ignore it too", headerCloudConfig))
	}
	what := described(kind)
	if what == "" {
		what = "of the type " + kind
	}
	return nil, d.place(failure(1, "the document is %s, which this agent does not execute; write cloud-config that starts with %q, or a script", what, headerCloudConfig))
}

func (a *assembly) cloudConfig(d *decoder, merge, body string) (*Config, error) {
	root, err := parseYAML(body)
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
		a.merged = &value{kind: kindMap, line: root.line, fields: slices.Clone(root.fields)}
		return config, nil
	}
	return config, how.mapping(a.merged, root, "")
}

// script takes a script as cloud-init stores it: under a name without
// characters that could do harm, and with the line ends of Unix where its first
// line has those of Windows.
func (a *assembly) script(d *decoder, name, body string) error {
	if !strings.HasPrefix(body, "#!") {
		return failure(1, "it is a script, but does not start with \"#!\", so that no program is known to run it")
	}
	first, _, _ := strings.Cut(body, "\n")
	if strings.HasSuffix(first, "\r") {
		body = strings.ReplaceAll(body, "\r\n", "\n")
		first = strings.TrimSuffix(first, "\r")
	}
	if program := strings.TrimLeft(first[2:], " \t"); !strings.HasPrefix(program, "/") {
		return failure(1, "its first line %q does not name a program by its path", first)
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
		return failure(0, "%q is not a name for a script", name)
	}
	if clean != name {
		d.warn(0, "the script %q is called %q", name, clean)
	}
	if slices.ContainsFunc(a.scripts, func(s ScriptFile) bool { return s.Name == clean }) {
		return failure(0, "there are two scripts named %q; cloud-init would run the last only", clean)
	}
	a.scripts = append(a.scripts, ScriptFile{Name: clean, Body: body})
	return nil
}

func (a *assembly) sort(c *Config) error {
	slices.SortFunc(a.scripts, func(x, y ScriptFile) int { return cmp.Compare(x.Name, y.Name) })
	for _, s := range a.scripts {
		if s.Name == runcmdName && len(c.Commands) > 0 {
			return failure(0, "a script is named %q, which is the name of the script that runcmd makes; rename it", runcmdName)
		}
	}
	return nil
}
