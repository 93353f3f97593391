package cloudconfig

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

func (d *decoder) files(v *document.Value) []bootstrapdata.File {
	var out []bootstrapdata.File
	left := int64(document.MaxContent)
	for i, item := range d.List(v, "write_files", document.MaxFiles) {
		what := fmt.Sprintf("write_files[%d]", i)
		f := d.file(item, what, left)
		if d.Err != nil {
			return nil
		}
		left -= int64(len(f.Content))
		out = append(out, f)
	}
	return out
}

func (d *decoder) file(v *document.Value, what string, limit int64) bootstrapdata.File {
	f := bootstrapdata.File{Mode: bootstrapdata.DefaultFileMode, User: "root", Group: "root"}
	if v.Kind != document.Map {
		d.Fail(v.Line, "%s is %s, not a mapping", what, v.Kind)
		return f
	}
	var content, encoding *document.Value
	for _, field := range v.Fields {
		v := field.Value
		name := what + "." + field.Name
		switch field.Name {
		case "path":
			if text := d.Text(v, name); text == "" || strings.Contains(text, "\x00") || document.AbsolutePath(text) == "/" {
				d.Fail(v.Line, "%s %q is not the path of a file", name, text)
			} else {
				f.Path = document.AbsolutePath(text)
			}
		case "content":
			content = v
		case "encoding":
			encoding = v
		case "owner":
			f.User, f.Group = d.owner(v, name)
		case "permissions":
			f.Mode = d.mode(v, name)
		case "append":
			f.Append = v.IsTrue()
		case "defer":
			f.Defer = v.IsTrue()
		default:
			d.Warn(field.Line, "unknown key %q of %s", field.Name, what)
		}
	}
	if f.Path == "" {
		d.Fail(v.Line, "%s has no path", what)
		return f
	}
	f.Content = d.content(content, encoding, fmt.Sprintf("the content of %s (%s)", what, f.Path), limit)
	return f
}

// owner splits "user:group". As in cloud-init, an owner without a group leaves
// the group unchanged, and a number is not an ID.
func (d *decoder) owner(v *document.Value, what string) (user, group string) {
	if v.Kind == document.Null {
		return "", ""
	}
	if v.Kind != document.String {
		d.Fail(v.Line, "%s is %s; an owner is user:group, by name", what, v.Kind)
		return "", ""
	}
	user, group, _ = strings.Cut(v.Text, ":")
	for _, part := range []*string{&user, &group} {
		*part = strings.TrimSpace(*part)
		if *part == "-1" || strings.EqualFold(*part, "none") {
			*part = ""
		}
		if _, err := strconv.Atoi(*part); err == nil {
			d.Fail(v.Line, "%s %q is a number; cloud-init looks owners up by name only, so name the user or group", what, v.Text)
		}
	}
	return user, group
}

// mode returns the mode that a file finally has with cloud-init. Strings are octal.
// An invalid string means 0644. So does 0, because cloud-init calls no chmod then.
// The chown that follows clears the set-user-ID and set-group-ID bits.
func (d *decoder) mode(v *document.Value, what string) fs.FileMode {
	var n int64
	switch v.Kind {
	case document.Null:
		return bootstrapdata.DefaultFileMode
	case document.Int:
		n = v.Int
		if !strings.HasPrefix(v.Text, "0") {
			d.Warn(v.Line, "%s is the decimal number %s, which is the mode %04o; put octal modes in quotes", what, v.Text, n)
		}
	case document.Float:
		n = int64(v.Float)
		d.Warn(v.Line, "%s is the number %s, which is the mode %04o; put octal modes in quotes", what, v.Text, n)
	default:
		parsed, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(v.PythonString()), "0o"), "0O"), 8, 64)
		if err != nil {
			d.Warn(v.Line, "%s %q is not an octal mode; the file gets %04o, as with cloud-init", what, v.PythonString(), bootstrapdata.DefaultFileMode)
			return bootstrapdata.DefaultFileMode
		}
		n = parsed
	}
	if n < 0 || n > 0o7777 {
		d.Fail(v.Line, "%s %s is out of range; the largest mode is 7777", what, v.PythonString())
		return bootstrapdata.DefaultFileMode
	}
	if n == 0 {
		d.Warn(v.Line, "%s is 0, with which cloud-init leaves the file at %04o", what, bootstrapdata.DefaultFileMode)
		return bootstrapdata.DefaultFileMode
	}
	mode := fs.FileMode(n & 0o777)
	if n&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if n&0o2000 != 0 && n&0o010 == 0 {
		mode |= fs.ModeSetgid
	}
	if n&0o4000 != 0 || n&0o2010 == 0o2010 {
		d.Warn(v.Line, "%s %04o: the set-ID bits are lost, because the owner is set after the mode", what, n)
	}
	return mode
}

func (d *decoder) content(v, encoding *document.Value, what string, limit int64) []byte {
	if v == nil {
		return nil
	}
	if v.Kind != document.String && v.Kind != document.Binary {
		d.Fail(v.Line, "%s is %s, not a string; put it in quotes", what, v.Kind)
		return nil
	}
	data := []byte(v.Text)
	unpack, unzip := false, false
	if encoding != nil && encoding.IsTruthy() {
		switch strings.ToLower(strings.TrimSpace(encoding.PythonString())) {
		case "", "text/plain":
		case "b64", "base64":
			unpack = true
		case "gz", "gzip":
			unzip = true
		case "gz+base64", "gzip+base64", "gz+b64", "gzip+b64":
			unpack, unzip = true, true
		default:
			d.Fail(encoding.Line, "%s has the unknown encoding %q; known are base64, gzip and gzip+base64", what, encoding.PythonString())
			return nil
		}
	}
	var err error
	if unpack {
		if data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(v.Text), "")); err != nil {
			d.Fail(v.Line, "%s is bad base64: %v", what, err)
			return nil
		}
	}
	if unzip {
		if data, err = document.Gunzip(data, limit); err != nil {
			d.Fail(v.Line, "%s is bad gzip: %v", what, err)
			return nil
		}
	}
	if int64(len(data)) > limit {
		d.Fail(v.Line, "the files together have more than the %d bytes allowed", document.MaxContent)
	}
	return data
}
