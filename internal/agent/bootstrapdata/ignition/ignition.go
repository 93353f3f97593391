package ignition

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

const notWhileRunning = "cannot be done on a running system"

// decoder decodes an Ignition configuration of specification 3.x
// (coreos.github.io/ignition/configuration-v3_5) or 2.x, which the kubeadm
// bootstrap provider writes (configuration-v2_3). Ignition itself runs before the system
// boots. Settings that a running system cannot apply are errors. Units
// that the boot would start are started after everything else.
//
// The methods of decoder decode the sections other than storage, and what several
// sections have in common.
type decoder struct {
	*document.Decoder
	major, minor int
	config       *bootstrapdata.Config
	left         int64 // bytes left of document.MaxContent
	// mounted are the paths at which Ignition would mount file systems.
	mounted []string
}

// Parse reads an Ignition configuration. Unlike with cloud-init, users are made
// before files are written, so all files have Defer set.
func Parse(data []byte) (*bootstrapdata.Config, []bootstrapdata.Warning, error) {
	text, err := document.Text(data)
	if err != nil {
		return nil, nil, err
	}
	root, err := document.ParseJSON(text)
	if err != nil {
		return nil, nil, err
	}
	d := &decoder{
		Decoder: &document.Decoder{}, config: &bootstrapdata.Config{Format: bootstrapdata.FormatIgnition}, left: document.MaxContent,
	}
	d.version(root)
	if d.Err == nil {
		d.document(root)
	}
	if d.Err == nil {
		d.finish(root)
	}
	if d.Err != nil {
		return nil, nil, d.Err
	}
	return d.config, d.Warnings, nil
}

// The last minor version of each specification that is known.
const (
	newest2 = 3
	newest3 = 6
)

func (d *decoder) version(root *document.Value) {
	header := root.Get("ignition")
	if header == nil || header.Kind != document.Map || header.Get("version") == nil {
		d.Fail(root.Line, "ignition.version is missing; is this an Ignition configuration?")
		return
	}
	v := header.Get("version")
	text := d.Text(v, "ignition.version")
	parts := strings.Split(text, ".")
	if len(parts) == 3 && parts[2] == "0" {
		major, majorErr := strconv.Atoi(parts[0])
		minor, minorErr := strconv.Atoi(parts[1])
		known := major == 2 && minor <= newest2 || major == 3 && minor <= newest3
		if majorErr == nil && minorErr == nil && known && minor >= 0 {
			d.major, d.minor = major, minor
			return
		}
	}
	d.Fail(v.Line, "ignition.version %q is unknown; known are 2.0.0 to 2.%d.0 and 3.0.0 to 3.%d.0", text, newest2, newest3)
}

func (d *decoder) document(root *document.Value) {
	later := func(*document.Value, string) {}
	known := document.Keys{
		"ignition":        d.header,
		"kernelArguments": d.kernelArguments,
		"passwd":          later,
		"storage":         later,
		"systemd":         later,
	}
	if d.major == 2 {
		known["networkd"] = d.networkd
	}
	d.Object(root, "", known)
	for _, section := range []struct {
		name string
		read func(*document.Value, string)
	}{{"passwd", d.passwd}, {"storage", newStorageDecoder(d).storage}, {"systemd", d.systemd}} {
		if v := root.Get(section.name); v != nil && v.Kind != document.Null && d.Err == nil {
			section.read(v, section.name)
		}
	}
}

func (d *decoder) header(v *document.Value, what string) {
	ignored := func(*document.Value, string) {} // settings for fetching; nothing is fetched
	remote := func(v *document.Value, what string) {
		if len(v.Items) > 0 || v.Get("source") != nil && v.Get("source").IsTruthy() {
			d.Fail(v.Line, "%s names another configuration; remote sources are not fetched, so write all into one document", what)
		}
	}
	d.Object(v, what, document.Keys{
		"version":  ignored,
		"timeouts": ignored,
		"proxy":    ignored,
		"security": ignored,
		"config": func(v *document.Value, what string) {
			d.Object(v, what, document.Keys{"replace": remote, "append": remote, "merge": remote})
		},
	})
}

// refuse returns a function that fails unless a list or an object is empty.
func (d *decoder) refuse(reason string) func(*document.Value, string) {
	return func(v *document.Value, what string) {
		if len(v.Items) > 0 || len(v.Fields) > 0 {
			d.Fail(v.Line, "%s %s", what, reason)
		}
	}
}

func (d *decoder) kernelArguments(v *document.Value, what string) {
	refuse := d.refuse(notWhileRunning + "; set kernel arguments in the image")
	d.Object(v, what, document.Keys{"shouldExist": refuse, "shouldNotExist": refuse})
}

func (d *decoder) networkd(v *document.Value, what string) {
	d.Object(v, what, document.Keys{"units": d.refuse("are not taken into use on a running system, which they could cut off; configure the network in the image")})
}

// finish checks the document as a whole and marks the units that report success.
func (d *decoder) finish(root *document.Value) {
	c := d.config
	for _, m := range d.mounted {
		for _, p := range paths(c) {
			if p == m || strings.HasPrefix(p, m+"/") {
				d.Fail(root.Line, "%s is on the file system of %s, which is mounted by its unit only after files are written; write the file with a command", p, m)
			}
		}
	}
	for n := range c.Units {
		u := &c.Units[n]
		if u.Starts() && reportsSuccess(c, u.Name) {
			u.Awaited, c.Sentinel = true, bootstrapdata.SentinelPath
		}
	}
}

func paths(c *bootstrapdata.Config) []string {
	var out []string
	for _, d := range c.Directories {
		out = append(out, d.Path)
	}
	for _, f := range c.Files {
		out = append(out, f.Path)
	}
	for _, l := range c.Links {
		out = append(out, l.Path)
	}
	return out
}

// reportsSuccess reports whether a unit writes the success file: in its own text, or in a
// file that it names.
func reportsSuccess(c *bootstrapdata.Config, unit string) bool {
	var text strings.Builder
	for _, f := range c.Files {
		if f.Path == unitDir+unit || strings.HasPrefix(f.Path, unitDir+unit+".d/") {
			text.Write(f.Content)
		}
	}
	if strings.Contains(text.String(), bootstrapdata.SentinelPath) {
		return true
	}
	for _, f := range c.Files {
		if strings.Contains(text.String(), f.Path) && strings.Contains(string(f.Content), bootstrapdata.SentinelPath) {
			return true
		}
	}
	return false
}

// each returns a function that reads a list of objects.
func (d *decoder) each(limit int, read func(v *document.Value, what string)) func(*document.Value, string) {
	return func(v *document.Value, what string) {
		for n, item := range d.List(v, what, limit) {
			if d.Err != nil {
				return
			}
			name := fmt.Sprintf("%s[%d]", what, n)
			if item.Kind != document.Map {
				d.Fail(item.Line, "%s is %s, not an object", name, item.Kind)
				return
			}
			read(item, name)
		}
	}
}

// addFile adds a file and fails if there are too many files.
func (d *decoder) addFile(f bootstrapdata.File) {
	d.config.Files = append(d.config.Files, f)
	if len(d.config.Files) > document.MaxFiles {
		d.Fail(0, "the document has more than the %d files allowed", document.MaxFiles)
	}
}
