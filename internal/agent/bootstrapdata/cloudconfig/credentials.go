package cloudconfig

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// keyLine matches a line of authorized_keys (sshd(8)): options, the type and the key.
// Options may contain spaces within quotes.
var keyLine = regexp.MustCompile(`^(?:(?:[^\s"]|"(?:\\"|[^"])*")+\s+)?` +
	`(?:(?:sk-)?(?:ssh-ed25519|ecdsa-sha2-nistp256)(?:-cert-v01)?@openssh\.com|ssh-(?:rsa|dss|ed25519|xmss)-cert-v01@openssh\.com|` +
	`ecdsa-sha2-nistp(?:256|384|521)(?:-cert-v01@openssh\.com)?|ssh-xmss@openssh\.com|ssh-(?:rsa|dss|ed25519))\s+\S+`)

// sshKeys returns the keys. Other lines are left out, as in cloud-init, which does not
// say so.
func (d *decoder) sshKeys(v *document.Value, what string) []string {
	var keys []string
	for i, key := range d.SSHKeys(v, what) {
		if !keyLine.MatchString(key) {
			d.Warn(v.Line, "%s: number %d is not an SSH public key and is left out", what, i+1)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// rootKeys decodes the keys at the top level. cloud-init gives them to its default user,
// which hosts do not have, and to root, where they do not permit a login unless
// disable_root is false.
func (d *decoder) rootKeys(root, v *document.Value) []string {
	keys := d.sshKeys(v, "ssh_authorized_keys")
	if disable := root.Get("disable_root"); disable == nil || disable.IsTruthy() {
		d.Warn(v.Line, "ssh_authorized_keys at the top level permits nobody to log in, because there is no default user on this host; "+
			"write the keys under users, or set disable_root to false to permit root")
		return nil
	}
	return keys
}

// hashForm matches the password hashes that cloud-init recognizes in chpasswd.list.
var hashForm = regexp.MustCompile(`^\$(1|2a|2y|5|6)(\$.+){2}`)

// passwords decodes chpasswd.
func (d *decoder) passwords(v *document.Value) []bootstrapdata.Password {
	var entries, list *document.Value
	expire := true
	for _, f := range d.Mapping(v, "chpasswd") {
		switch f.Name {
		case "expire":
			expire = f.Value.IsTruthy()
		case "users":
			entries = f.Value
		case "list":
			list = f.Value
		default:
			d.Warn(f.Line, "unknown key %q of chpasswd", f.Name)
		}
	}
	var out []bootstrapdata.Password
	if entries != nil {
		for i, entry := range d.List(entries, "chpasswd.users", document.MaxEntries) {
			out = append(out, d.password(entry, fmt.Sprintf("chpasswd.users[%d]", i), expire))
		}
	}
	if list != nil {
		out = append(out, d.passwordList(list, expire)...)
	}
	return out
}

// password decodes an entry of chpasswd.users.
func (d *decoder) password(v *document.Value, what string, expire bool) bootstrapdata.Password {
	var name, value string
	kind := "hash"
	for _, f := range d.Mapping(v, what) {
		switch f.Name {
		case "name":
			name = d.Text(f.Value, what+".name")
		case "password":
			value = d.passwordText(f.Value, what+".password")
		case "type":
			kind = d.Text(f.Value, what+".type")
		default:
			d.Warn(f.Line, "unknown key %q of %s", f.Name, what)
		}
	}
	p := bootstrapdata.Password{User: d.AccountName(v, name, what+".name"), Value: value, Hashed: kind == "hash", Expire: expire}
	switch {
	case kind == "RANDOM":
		d.Fail(v.Line, noRandom, what)
	case kind != "hash" && kind != "text":
		d.Fail(v.Line, "%s.type %q is neither hash nor text", what, kind)
	case value == "":
		d.Fail(v.Line, "%s has no password", what)
	case p.Hashed && strings.Contains(value, ":"):
		d.Fail(v.Line, "%s.password contains a colon, which a hash does not have", what)
	}
	return p
}

// passwordList decodes the older form: lines or items "user:password".
func (d *decoder) passwordList(v *document.Value, expire bool) []bootstrapdata.Password {
	var lines []string
	if v.Kind == document.String {
		lines = strings.Split(strings.TrimRight(v.Text, "\r\n"), "\n")
	} else {
		lines = d.ScalarTexts(v, "chpasswd.list")
	}
	var out []bootstrapdata.Password
	for i, line := range lines {
		what := fmt.Sprintf("chpasswd.list[%d]", i)
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r"), ":")
		if !ok || value == "" || strings.ContainsAny(value, "\n\r\x00") {
			d.Fail(v.Line, "%s is not a user and a password, separated by a colon", what)
			return nil
		}
		if value == "R" || value == "RANDOM" {
			d.Fail(v.Line, noRandom, what)
		}
		hashed := hashForm.MatchString(value) && !strings.Contains(value, ":")
		out = append(out, bootstrapdata.Password{User: d.AccountName(v, name, what), Value: value, Hashed: hashed, Expire: expire})
	}
	return out
}

// noRandom refuses a password that cloud-init would make up: it could be shown in a log
// only.
const noRandom = "%s asks for a random password, which nobody would learn, because passwords are never logged; set one"

func (d *decoder) passwordText(v *document.Value, what string) string {
	text := d.Text(v, what)
	if strings.ContainsAny(text, "\n\r\x00") {
		d.Fail(v.Line, "%s contains a line break", what)
	}
	return text
}
