package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
)

const notWhileRunning = "cannot be done on a running system"

// ignition reads an Ignition configuration: of the specifications 3.x
// (coreos.github.io/ignition/configuration-v3_5) and 2.x, in which the kubeadm
// bootstrap provider writes (configuration-v2_3). Ignition itself runs before
// the system does. What of that makes no sense later is refused; units that
// would be started by the boot are started once all is in place.
type ignition struct {
	*decoder
	major, minor int
	config       *Config
	left         int64 // of the room for contents
	// places are the paths of file systems by name, in 2.x.
	places map[string]string
	// mounted are the paths at which Ignition would mount file systems.
	mounted []string
}

// parseIgnition reads Ignition. It differs from cloud-init in that users are
// made before files are written.
func parseIgnition(data []byte) (*Config, []Warning, error) {
	text, err := readText(data)
	if err != nil {
		return nil, nil, err
	}
	root, err := parseJSON(text)
	if err != nil {
		return nil, nil, err
	}
	i := &ignition{
		decoder: &decoder{}, config: &Config{Format: FormatIgnition}, left: maxContent,
		places: map[string]string{"root": "/"},
	}
	i.version(root)
	if i.err == nil {
		i.document(root)
	}
	if i.err == nil {
		i.finish(root)
	}
	if i.err != nil {
		return nil, nil, i.err
	}
	return i.config, i.warnings, nil
}

// The last minor version of each specification that is known.
const (
	newest2 = 3
	newest3 = 6
)

func (i *ignition) version(root *value) {
	header := root.get("ignition")
	if header == nil || header.kind != kindMap || header.get("version") == nil {
		i.fail(root.line, "ignition.version is missing; is this an Ignition configuration?")
		return
	}
	v := header.get("version")
	text := i.text(v, "ignition.version")
	parts := strings.Split(text, ".")
	if len(parts) == 3 && parts[2] == "0" {
		major, majorErr := strconv.Atoi(parts[0])
		minor, minorErr := strconv.Atoi(parts[1])
		known := major == 2 && minor <= newest2 || major == 3 && minor <= newest3
		if majorErr == nil && minorErr == nil && known && minor >= 0 {
			i.major, i.minor = major, minor
			return
		}
	}
	i.fail(v.line, "ignition.version %q is unknown; known are 2.0.0 to 2.%d.0 and 3.0.0 to 3.%d.0", text, newest2, newest3)
}

func (i *ignition) document(root *value) {
	later := func(*value, string) {}
	known := fields{
		"ignition":        i.header,
		"kernelArguments": i.kernelArguments,
		"passwd":          later,
		"storage":         later,
		"systemd":         later,
	}
	if i.major == 2 {
		known["networkd"] = i.networkd
	}
	i.object(root, "", known)
	for _, section := range []struct {
		name string
		read func(*value, string)
	}{{"passwd", i.passwd}, {"storage", i.storage}, {"systemd", i.systemd}} {
		if v := root.get(section.name); v != nil && v.kind != kindNull && i.err == nil {
			section.read(v, section.name)
		}
	}
}

func (i *ignition) header(v *value, what string) {
	ignored := func(*value, string) {} // it is about fetching, and nothing is fetched
	remote := func(v *value, what string) {
		if len(v.items) > 0 || v.get("source") != nil && v.get("source").truthy() {
			i.fail(v.line, "%s names another configuration; remote sources are not fetched, so write all into one document", what)
		}
	}
	i.object(v, what, fields{
		"version":  ignored,
		"timeouts": ignored,
		"proxy":    ignored,
		"security": ignored,
		"config": func(v *value, what string) {
			i.object(v, what, fields{"replace": remote, "append": remote, "merge": remote})
		},
	})
}

// refused is a list or an object that has to be empty.
func (i *ignition) refused(reason string) func(*value, string) {
	return func(v *value, what string) {
		if len(v.items) > 0 || len(v.fields) > 0 {
			i.fail(v.line, "%s %s", what, reason)
		}
	}
}

func (i *ignition) kernelArguments(v *value, what string) {
	refuse := i.refused(notWhileRunning + "; set kernel arguments in the image")
	i.object(v, what, fields{"shouldExist": refuse, "shouldNotExist": refuse})
}

func (i *ignition) networkd(v *value, what string) {
	i.object(v, what, fields{"units": i.refused("are not taken into use on a running system, which they could cut off; configure the network in the image")})
}

// finish looks at the document as a whole.
func (i *ignition) finish(root *value) {
	c := i.config
	for _, m := range i.mounted {
		for _, p := range i.paths() {
			if p == m || strings.HasPrefix(p, m+"/") {
				i.fail(root.line, "%s is on the file system of %s, which is mounted by its unit only after files are written; write the file with a command", p, m)
			}
		}
	}
	for n := range c.Units {
		u := &c.Units[n]
		if u.Starts() && i.reports(u.Name) {
			u.Awaited, c.Sentinel = true, SentinelPath
		}
	}
}

func (i *ignition) paths() []string {
	var out []string
	for _, d := range i.config.Directories {
		out = append(out, d.Path)
	}
	for _, f := range i.config.Files {
		out = append(out, f.Path)
	}
	for _, l := range i.config.Links {
		out = append(out, l.Path)
	}
	return out
}

// reports tells whether a unit writes the success file: by its own text, or by
// that of a file that it names.
func (i *ignition) reports(unit string) bool {
	var text strings.Builder
	for _, f := range i.config.Files {
		if f.Path == unitDir+unit || strings.HasPrefix(f.Path, unitDir+unit+".d/") {
			text.Write(f.Content)
		}
	}
	if strings.Contains(text.String(), SentinelPath) {
		return true
	}
	for _, f := range i.config.Files {
		if strings.Contains(text.String(), f.Path) && strings.Contains(string(f.Content), SentinelPath) {
			return true
		}
	}
	return false
}

// each reads a list of objects.
func (i *ignition) each(limit int, read func(v *value, what string)) func(*value, string) {
	return func(v *value, what string) {
		for n, item := range i.list(v, what, limit) {
			if i.err != nil {
				return
			}
			name := fmt.Sprintf("%s[%d]", what, n)
			if item.kind != kindMap {
				i.fail(item.line, "%s is %s, not an object", name, item.kind)
				return
			}
			read(item, name)
		}
	}
}
