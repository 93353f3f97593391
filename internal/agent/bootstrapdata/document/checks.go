package document

import (
	"path"
	"regexp"
	"strings"
)

// AbsolutePath cleans a path like os.path.abspath in cloud-init, whose working
// directory is "/".
func AbsolutePath(p string) string { return path.Join("/", p) }

var hostForm = regexp.MustCompile(`^[A-Za-z0-9_.:%-]+$`)

// IsHost reports whether a text may be a host name or an IP address.
func IsHost(text string) bool { return hostForm.MatchString(text) }

// accountName matches names that useradd and groupadd of common distributions
// accept. It excludes command line options and separators of passwd(5).
var accountName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,31}\$?$`)

// AccountName returns name and fails unless it is a valid user or group name.
func (d *Decoder) AccountName(v *Value, name, what string) string {
	if !accountName.MatchString(name) {
		d.Fail(v.Line, "%s %q is not a name for a user or group", what, name)
	}
	return name
}

// AccountField returns a string and fails unless it is valid in passwd(5) and
// shadow(5).
func (d *Decoder) AccountField(v *Value, what string) string {
	text := d.Text(v, what)
	if strings.ContainsAny(text, "\n\r\x00") || strings.Contains(text, ":") && !strings.HasSuffix(what, "plain_text_passwd") {
		d.Fail(v.Line, "%s contains a colon or a line break", what)
	}
	return text
}

// SSHKeys returns the distinct keys of a string, a list or a mapping.
func (d *Decoder) SSHKeys(v *Value, what string) []string {
	var all []string
	switch v.Kind {
	case Null:
	case String:
		all = strings.Split(v.Text, "\n")
	case Map:
		for _, f := range v.Fields {
			all = append(all, d.Text(f.Value, what))
		}
	default:
		all = d.ScalarTexts(v, what)
	}
	var keys []string
	seen := map[string]bool{}
	for _, key := range all {
		if key = strings.TrimSpace(key); key != "" && !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
		if strings.ContainsAny(key, "\n\x00") {
			d.Fail(v.Line, "%s contains a line break within a key", what)
		}
	}
	return keys
}

// Device resolves an alias and fails unless the result is an absolute path.
func (d *Decoder) Device(v *Value, name, what string, aliases map[string]string) string {
	if to, ok := aliases[name]; ok {
		name = to
	}
	if !strings.HasPrefix(name, "/") || strings.ContainsAny(name, " \t\n") {
		d.Fail(v.Line, "%s: %q is not the path of a device; write one below /dev, best below /dev/disk", what, name)
	}
	return name
}
