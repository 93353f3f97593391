package bootstrap

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// maxContent bounds the decoded content of all files together, in bytes.
const maxContent = 64 << 20

const defaultMode fs.FileMode = 0o644

func (d *decoder) files(v *value) []File {
	var out []File
	left := int64(maxContent)
	for i, item := range d.list(v, "write_files", maxFiles) {
		what := fmt.Sprintf("write_files[%d]", i)
		f := d.file(item, what, left)
		if d.err != nil {
			return nil
		}
		left -= int64(len(f.Content))
		out = append(out, f)
	}
	return out
}

func (d *decoder) file(v *value, what string, limit int64) File {
	f := File{Mode: defaultMode, User: "root", Group: "root"}
	if v.kind != kindMap {
		d.fail(v.line, "%s is %s, not a mapping", what, v.kind)
		return f
	}
	var content, encoding *value
	for _, field := range v.fields {
		v := field.value
		name := what + "." + field.name
		switch field.name {
		case "path":
			if text := d.text(v, name); text == "" || strings.Contains(text, "\x00") || absolute(text) == "/" {
				d.fail(v.line, "%s %q is not the path of a file", name, text)
			} else {
				f.Path = absolute(text)
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
			f.Append = v.isTrue()
		case "defer":
			f.Defer = v.isTrue()
		default:
			d.warn(field.line, "unknown key %q of %s", field.name, what)
		}
	}
	if f.Path == "" {
		d.fail(v.line, "%s has no path", what)
		return f
	}
	f.Content = d.content(content, encoding, fmt.Sprintf("the content of %s (%s)", what, f.Path), limit)
	return f
}

// owner splits "user:group". As in cloud-init an owner without a group leaves
// the group as it is, and names are looked up as names only.
func (d *decoder) owner(v *value, what string) (user, group string) {
	if v.kind == kindNull {
		return "", ""
	}
	if v.kind != kindString {
		d.fail(v.line, "%s is %s; an owner is user:group, by name", what, v.kind)
		return "", ""
	}
	user, group, _ = strings.Cut(v.text, ":")
	for _, part := range []*string{&user, &group} {
		*part = strings.TrimSpace(*part)
		if *part == "-1" || strings.EqualFold(*part, "none") {
			*part = ""
		}
		if _, err := strconv.Atoi(*part); err == nil {
			d.fail(v.line, "%s %q is a number; cloud-init looks owners up by name only, so name the user or group", what, v.text)
		}
	}
	return user, group
}

// mode reads permissions as cloud-init ends up applying them. Strings are
// octal; an undecodable one means 0644, and so does 0, for which cloud-init
// calls no chmod. The set-user-ID and set-group-ID bits are cleared by the
// chown that follows.
func (d *decoder) mode(v *value, what string) fs.FileMode {
	var n int64
	switch v.kind {
	case kindNull:
		return defaultMode
	case kindInt:
		n = v.number
		if !strings.HasPrefix(v.text, "0") {
			d.warn(v.line, "%s is the decimal number %s, which is the mode %04o; put octal modes in quotes", what, v.text, n)
		}
	case kindFloat:
		n = int64(v.float)
		d.warn(v.line, "%s is the number %s, which is the mode %04o; put octal modes in quotes", what, v.text, n)
	default:
		parsed, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(v.python()), "0o"), "0O"), 8, 64)
		if err != nil {
			d.warn(v.line, "%s %q is not an octal mode; the file gets %04o, as with cloud-init", what, v.python(), defaultMode)
			return defaultMode
		}
		n = parsed
	}
	if n < 0 || n > 0o7777 {
		d.fail(v.line, "%s %s is out of range; the largest mode is 7777", what, v.python())
		return defaultMode
	}
	if n == 0 {
		d.warn(v.line, "%s is 0, with which cloud-init leaves the file at %04o", what, defaultMode)
		return defaultMode
	}
	mode := fs.FileMode(n & 0o777)
	if n&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if n&0o2000 != 0 && n&0o010 == 0 {
		mode |= fs.ModeSetgid
	}
	if n&0o4000 != 0 || n&0o2010 == 0o2010 {
		d.warn(v.line, "%s %04o: the set-ID bits are lost, because the owner is set after the mode", what, n)
	}
	return mode
}

func (d *decoder) content(v, encoding *value, what string, limit int64) []byte {
	if v == nil {
		return nil
	}
	if v.kind != kindString && v.kind != kindBinary {
		d.fail(v.line, "%s is %s, not a string; put it in quotes", what, v.kind)
		return nil
	}
	data := []byte(v.text)
	unpack, unzip := false, false
	if encoding != nil && encoding.truthy() {
		switch strings.ToLower(strings.TrimSpace(encoding.python())) {
		case "", "text/plain":
		case "b64", "base64":
			unpack = true
		case "gz", "gzip":
			unzip = true
		case "gz+base64", "gzip+base64", "gz+b64", "gzip+b64":
			unpack, unzip = true, true
		default:
			d.fail(encoding.line, "%s has the unknown encoding %q; known are base64, gzip and gzip+base64", what, encoding.python())
			return nil
		}
	}
	var err error
	if unpack {
		if data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(v.text), "")); err != nil {
			d.fail(v.line, "%s is bad base64: %v", what, err)
			return nil
		}
	}
	if unzip {
		if data, err = gunzip(data, limit); err != nil {
			d.fail(v.line, "%s is bad gzip: %v", what, err)
			return nil
		}
	}
	if int64(len(data)) > limit {
		d.fail(v.line, "the files together have more than the %d bytes allowed", maxContent)
	}
	return data
}
