package bootstrap

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

func (i *ignition) storage(v *value, what string) {
	const disks = notWhileRunning + "; prepare disks in the image, or use bootstrap data of the format \"" + FormatCloudConfig + "\""
	i.object(v, what, fields{
		"disks":       i.refused(disks),
		"raid":        i.refused(disks),
		"luks":        i.refused(disks),
		"filesystems": i.each(maxEntries, i.filesystem),
		"directories": func(*value, string) {},
		"files":       func(*value, string) {},
		"links":       func(*value, string) {},
	})
	// File systems first, because the others may refer to them.
	for _, part := range []struct {
		name string
		read func(*value, string)
	}{{"directories", i.directory}, {"files", i.file}, {"links", i.link}} {
		if entries := v.get(part.name); entries != nil && entries.kind != kindNull {
			i.each(maxFiles, part.read)(entries, what+"."+part.name)
		}
	}
	// Outer directories first, as Ignition does.
	slices.SortStableFunc(i.config.Directories, func(a, b Directory) int {
		return cmp.Compare(strings.Count(a.Path, "/"), strings.Count(b.Path, "/"))
	})
}

// filesystem reads one that is made where there is none yet.
func (i *ignition) filesystem(v *value, what string) {
	name, place := "", ""
	f := Filesystem{Partition: "none", Keep: true}
	known := fields{
		"device":         func(v *value, what string) { f.Device = i.device(v, i.text(v, what), what, nil) },
		"format":         func(v *value, what string) { f.Type = i.text(v, what) },
		"label":          func(v *value, what string) { f.Label = i.text(v, what) },
		"uuid":           func(v *value, what string) { f.UUID = i.text(v, what) },
		"options":        func(v *value, what string) { f.Options = i.strings(v, what) },
		"mountOptions":   func(*value, string) {}, // for mounting by Ignition
		"wipeFilesystem": i.wipe,
		"create": func(v *value, what string) {
			i.object(v, what, fields{
				"force":   i.wipe,
				"options": func(v *value, what string) { f.Options = i.strings(v, what) },
			})
		},
	}
	setPath := func(v *value, what string) { place = i.path(v, what) }
	if i.major == 2 {
		i.object(v, what, fields{
			"name":  func(v *value, what string) { name = i.text(v, what) },
			"path":  setPath,
			"mount": func(v *value, what string) { i.object(v, what, known) },
		})
		if place != "" {
			i.places[name] = place
			return
		}
	} else {
		known["path"] = setPath
		i.object(v, what, known)
		if place != "" {
			i.mounted = append(i.mounted, place)
		}
	}
	switch {
	case i.err != nil:
	case f.Device == "":
		i.fail(v.line, "%s has no device", what)
	case f.Type == "none" && i.major == 3:
	case !slices.Contains([]string{"ext4", "btrfs", "xfs", "vfat", "swap"}, f.Type):
		i.fail(v.line, "%s.format %q is unknown; known are ext4, btrfs, xfs, vfat and swap", what, f.Type)
	default:
		i.config.Filesystems = append(i.config.Filesystems, f)
	}
}

func (i *ignition) wipe(v *value, what string) {
	if i.flag(v, what) {
		i.fail(v.line, "%s: wiping a file system %s; an empty device, or one with the wanted file system, needs no wiping", what, notWhileRunning)
	}
}

// node is what files, directories and links have in common.
type node struct {
	path        string
	user, group string
	uid, gid    *int
	overwrite   *bool
	mode        *fs.FileMode
}

func (i *ignition) node(n *node, more fields) fields {
	owner := func(name *string, id **int) func(*value, string) {
		return func(v *value, what string) {
			i.object(v, what, fields{
				"name": func(v *value, what string) {
					if *name = i.text(v, what); *name != "" {
						i.account(v, *name, what)
					}
				},
				"id": func(v *value, what string) { *id = new(i.integer(v, what, 1<<32-2)) },
			})
			if *name != "" && *id != nil {
				i.fail(v.line, "%s has both a name and an id", what)
			}
		}
	}
	place := "/"
	known := fields{
		"path":      func(v *value, what string) { n.path = i.path(v, what) },
		"user":      owner(&n.user, &n.uid),
		"group":     owner(&n.group, &n.gid),
		"overwrite": func(v *value, what string) { n.overwrite = new(i.flag(v, what)) },
		"mode":      func(v *value, what string) { n.mode = new(i.permissions(v, what)) },
	}
	if i.major == 2 {
		known["filesystem"] = func(v *value, what string) {
			name := i.text(v, what)
			if place = i.places[name]; place == "" {
				i.fail(v.line, "%s %q is not the root file system; files on others are not written", what, name)
			}
			if n.path != "" {
				n.path = path.Join(place, n.path)
			}
		}
		known["path"] = func(v *value, what string) { n.path = path.Join(place, i.path(v, what)) }
	}
	maps.Copy(known, more)
	return known
}

func (i *ignition) path(v *value, what string) string {
	text := i.text(v, what)
	if !strings.HasPrefix(text, "/") || strings.Contains(text, "\x00") || len(text) > 4095 {
		i.fail(v.line, "%s %q is not an absolute path", what, text)
	}
	return absolute(text)
}

// permissions reads a mode, which JSON can write in decimal only. Bits beyond
// the permissions count from 3.4 on.
func (i *ignition) permissions(v *value, what string) fs.FileMode {
	n := i.integer(v, what, 0o7777)
	mode := fs.FileMode(n & 0o777)
	if n > 0o777 && (i.major < 3 || i.minor < 4) {
		i.warn(v.line, "%s %d is the mode %04o; bits beyond 0777 have no effect before version 3.4.0", what, n, n)
		return mode
	}
	for bit, set := range map[int]fs.FileMode{0o1000: fs.ModeSticky, 0o2000: fs.ModeSetgid, 0o4000: fs.ModeSetuid} {
		if n&bit != 0 {
			mode |= set
		}
	}
	return mode
}

// complete checks what every node needs.
func (i *ignition) complete(v *value, what string, n *node) bool {
	if i.err == nil && (n.path == "" || n.path == "/") {
		i.fail(v.line, "%s has no path", what)
	}
	return i.err == nil
}

func (i *ignition) directory(v *value, what string) {
	var n node
	i.object(v, what, i.node(&n, nil))
	if !i.complete(v, what, &n) {
		return
	}
	d := Directory{Path: n.path, User: n.user, Group: n.group, UID: n.uid, GID: n.gid, Mode: 0o755, KeepMode: n.mode == nil}
	if n.mode != nil {
		d.Mode = *n.mode
	}
	d.New = n.overwrite != nil && *n.overwrite
	i.config.Directories = append(i.config.Directories, d)
}

func (i *ignition) link(v *value, what string) {
	var n node
	l := Link{}
	i.object(v, what, i.node(&n, fields{
		"target": func(v *value, what string) { l.Target = i.text(v, what) },
		"hard":   func(v *value, what string) { l.Hard = i.flag(v, what) },
	}))
	if !i.complete(v, what, &n) {
		return
	}
	switch {
	case l.Target == "" || strings.Contains(l.Target, "\x00"):
		i.fail(v.line, "%s has no target", what)
	case l.Hard && !strings.HasPrefix(l.Target, "/"):
		i.fail(v.line, "%s.target %q is not an absolute path, which a hard link needs", what, l.Target)
	}
	if n.user+n.group != "" || n.uid != nil || n.gid != nil {
		i.warn(v.line, "%s: the owner of a link has no effect", what)
	}
	l.Path, l.Overwrite = n.path, n.overwrite != nil && *n.overwrite
	i.config.Links = append(i.config.Links, l)
}

// file reads a file. In 2.x "append" says what to do with the contents, in 3.x
// it is a list of contents to add.
func (i *ignition) file(v *value, what string) {
	var n node
	var content []byte
	given, appends := false, false
	known := i.node(&n, fields{
		"contents": func(v *value, what string) {
			data, found := i.contents(v, what)
			content, given = append(data, content...), found
		},
	})
	if i.major == 2 {
		given = true
		known["append"] = func(v *value, what string) { appends = i.flag(v, what) }
	} else {
		known["append"] = i.each(maxEntries, func(v *value, what string) {
			data, _ := i.contents(v, what)
			content = append(content, data...)
		})
	}
	i.object(v, what, known)
	if !i.complete(v, what, &n) {
		return
	}
	f := File{Path: n.path, Content: content, User: n.user, Group: n.group, UID: n.uid, GID: n.gid, Mode: defaultMode, Defer: true}
	f.Append = appends || i.major == 3 && !given
	i.replacing(v, what, &n, &f, given)
	if n.mode != nil {
		f.Mode = *n.mode
	}
	i.add(f)
	if f.Path == "/etc/hostname" {
		i.hostName(string(content))
	}
}

// replacing settles what becomes of a file that exists.
func (i *ignition) replacing(v *value, what string, n *node, f *File, given bool) {
	overwrite := i.major == 2
	if n.overwrite != nil {
		overwrite = *n.overwrite
	}
	switch {
	case i.major == 3 && overwrite && !given:
		i.fail(v.line, "%s has overwrite but no contents.source to overwrite with", what)
	case i.major == 2 && f.Append && n.overwrite != nil && overwrite:
		i.fail(v.line, "%s has both append and overwrite", what)
	case f.Append:
		f.KeepMode = n.mode == nil
	default:
		f.New = !overwrite
		if f.UID == nil && f.User == "" {
			f.User = "root"
		}
		if f.GID == nil && f.Group == "" {
			f.Group = "root"
		}
	}
}

// hostName makes the name take effect that a boot would read from its file.
func (i *ignition) hostName(content string) {
	if name := strings.TrimSpace(content); hostForm.MatchString(name) && !strings.HasPrefix(name, "-") {
		i.config.HostName = &HostName{Name: name}
	}
}

// add adds a file within the bounds of all of them.
func (i *ignition) add(f File) {
	i.config.Files = append(i.config.Files, f)
	if len(i.config.Files) > maxFiles {
		i.fail(0, "the document has more than the %d files allowed", maxFiles)
	}
}

// contents reads what a file holds, and whether it says so at all.
func (i *ignition) contents(v *value, what string) (data []byte, found bool) {
	source, compression, hash := "", "", ""
	line := v.line
	i.object(v, what, fields{
		"source": func(v *value, what string) { source, found, line = i.text(v, what), true, v.line },
		"compression": func(v *value, what string) {
			if compression = i.text(v, what); compression != "" && compression != "gzip" {
				i.fail(v.line, "%s %q is unknown; known is gzip", what, compression)
			}
		},
		"verification": func(v *value, what string) {
			i.object(v, what, fields{"hash": func(v *value, what string) { hash = i.text(v, what) }})
		},
		"httpHeaders": func(*value, string) {},
	})
	if i.err != nil || !found {
		return nil, found
	}
	data, err := readDataURL(source)
	if err == nil && compression == "gzip" {
		data, err = gunzip(data, i.left)
	}
	if err == nil {
		err = verify(data, hash)
	}
	if err != nil {
		i.fail(line, "%s.source: %v", what, err)
		return nil, true
	}
	if i.left -= int64(len(data)); i.left < 0 {
		i.fail(line, "the files together have more than the %d bytes allowed", maxContent)
		return nil, true
	}
	return data, true
}

// unit files are written like others.
const unitDir = "/etc/systemd/system/"

func unitFile(name, contents string) File {
	return File{Path: unitDir + name, Content: []byte(contents), User: "root", Group: "root", Mode: defaultMode, Defer: true}
}

func dropinFile(unit, name, contents string) File {
	return unitFile(fmt.Sprintf("%s.d/%s", unit, name), contents)
}
