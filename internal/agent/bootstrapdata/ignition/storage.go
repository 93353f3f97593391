package ignition

import (
	"cmp"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// storageDecoder decodes the section "storage".
type storageDecoder struct {
	*decoder
	// filesystemPaths are the paths of file systems by name. Only 2.x has names.
	filesystemPaths map[string]string
}

func newStorageDecoder(d *decoder) *storageDecoder {
	return &storageDecoder{decoder: d, filesystemPaths: map[string]string{"root": "/"}}
}

func (s *storageDecoder) storage(v *document.Value, what string) {
	const disks = notWhileRunning + "; prepare disks in the image, or use bootstrap data of the format \"" + bootstrapdata.FormatCloudConfig + "\""
	s.Object(v, what, document.Keys{
		"disks":       s.refuse(disks),
		"raid":        s.refuse(disks),
		"luks":        s.refuse(disks),
		"filesystems": s.each(document.MaxEntries, s.filesystem),
		"directories": func(*document.Value, string) {},
		"files":       func(*document.Value, string) {},
		"links":       func(*document.Value, string) {},
	})
	// File systems first, because the others may refer to them.
	for _, part := range []struct {
		name string
		read func(*document.Value, string)
	}{{"directories", s.directory}, {"files", s.file}, {"links", s.link}} {
		if entries := v.Get(part.name); entries != nil && entries.Kind != document.Null {
			s.each(document.MaxFiles, part.read)(entries, what+"."+part.name)
		}
	}
	// Outer directories first, as Ignition does.
	slices.SortStableFunc(s.config.Directories, func(a, b bootstrapdata.Directory) int {
		return cmp.Compare(strings.Count(a.Path, "/"), strings.Count(b.Path, "/"))
	})
}

// filesystem reads a file system. It is made on an empty device only.
func (s *storageDecoder) filesystem(v *document.Value, what string) {
	name, mountPath := "", ""
	f := bootstrapdata.Filesystem{Partition: "none", Keep: true}
	known := document.Keys{
		"device":         func(v *document.Value, what string) { f.Device = s.Device(v, s.Text(v, what), what, nil) },
		"format":         func(v *document.Value, what string) { f.Type = s.Text(v, what) },
		"label":          func(v *document.Value, what string) { f.Label = s.Text(v, what) },
		"uuid":           func(v *document.Value, what string) { f.UUID = s.Text(v, what) },
		"options":        func(v *document.Value, what string) { f.Options = s.Strings(v, what) },
		"mountOptions":   func(*document.Value, string) {}, // for mounting by Ignition
		"wipeFilesystem": s.wipe,
		"create": func(v *document.Value, what string) {
			s.Object(v, what, document.Keys{
				"force":   s.wipe,
				"options": func(v *document.Value, what string) { f.Options = s.Strings(v, what) },
			})
		},
	}
	setPath := func(v *document.Value, what string) { mountPath = s.path(v, what) }
	if s.major == 2 {
		s.Object(v, what, document.Keys{
			"name":  func(v *document.Value, what string) { name = s.Text(v, what) },
			"path":  setPath,
			"mount": func(v *document.Value, what string) { s.Object(v, what, known) },
		})
		if mountPath != "" {
			s.filesystemPaths[name] = mountPath
			return
		}
	} else {
		known["path"] = setPath
		s.Object(v, what, known)
		if mountPath != "" {
			s.mounted = append(s.mounted, mountPath)
		}
	}
	switch {
	case s.Err != nil:
	case f.Device == "":
		s.Fail(v.Line, "%s has no device", what)
	case f.Type == "none" && s.major == 3:
	case !slices.Contains([]string{"ext4", "btrfs", "xfs", "vfat", "swap"}, f.Type):
		s.Fail(v.Line, "%s.format %q is unknown; known are ext4, btrfs, xfs, vfat and swap", what, f.Type)
	default:
		s.config.Filesystems = append(s.config.Filesystems, f)
	}
}

func (s *storageDecoder) wipe(v *document.Value, what string) {
	if s.Flag(v, what) {
		s.Fail(v.Line, "%s: wiping a file system %s; an empty device, or one with the wanted file system, needs no wiping", what, notWhileRunning)
	}
}

// node holds the fields that files, directories and links share.
type node struct {
	path        string
	user, group string
	uid, gid    *int
	overwrite   *bool
	mode        *fs.FileMode
}

func (s *storageDecoder) node(n *node, more document.Keys) document.Keys {
	owner := func(name *string, id **int) func(*document.Value, string) {
		return func(v *document.Value, what string) {
			s.Object(v, what, document.Keys{
				"name": func(v *document.Value, what string) {
					if *name = s.Text(v, what); *name != "" {
						s.AccountName(v, *name, what)
					}
				},
				"id": func(v *document.Value, what string) { *id = new(s.Integer(v, what, 1<<32-2)) },
			})
			if *name != "" && *id != nil {
				s.Fail(v.Line, "%s has both a name and an id", what)
			}
		}
	}
	base := "/"
	known := document.Keys{
		"path":      func(v *document.Value, what string) { n.path = s.path(v, what) },
		"user":      owner(&n.user, &n.uid),
		"group":     owner(&n.group, &n.gid),
		"overwrite": func(v *document.Value, what string) { n.overwrite = new(s.Flag(v, what)) },
		"mode":      func(v *document.Value, what string) { n.mode = new(s.permissions(v, what)) },
	}
	if s.major == 2 {
		known["filesystem"] = func(v *document.Value, what string) {
			name := s.Text(v, what)
			if base = s.filesystemPaths[name]; base == "" {
				s.Fail(v.Line, "%s %q is not the root file system; files on others are not written", what, name)
			}
			if n.path != "" {
				n.path = path.Join(base, n.path)
			}
		}
		known["path"] = func(v *document.Value, what string) { n.path = path.Join(base, s.path(v, what)) }
	}
	maps.Copy(known, more)
	return known
}

func (s *storageDecoder) path(v *document.Value, what string) string {
	text := s.Text(v, what)
	if !strings.HasPrefix(text, "/") || strings.Contains(text, "\x00") || len(text) > 4095 {
		s.Fail(v.Line, "%s %q is not an absolute path", what, text)
	}
	return document.AbsolutePath(text)
}

// permissions reads a mode. JSON can write it in decimal only. Bits beyond 0777
// have an effect since version 3.4.
func (s *storageDecoder) permissions(v *document.Value, what string) fs.FileMode {
	n := s.Integer(v, what, 0o7777)
	mode := fs.FileMode(n & 0o777)
	if n > 0o777 && (s.major < 3 || s.minor < 4) {
		s.Warn(v.Line, "%s %d is the mode %04o; bits beyond 0777 have no effect before version 3.4.0", what, n, n)
		return mode
	}
	for bit, set := range map[int]fs.FileMode{0o1000: fs.ModeSticky, 0o2000: fs.ModeSetgid, 0o4000: fs.ModeSetuid} {
		if n&bit != 0 {
			mode |= set
		}
	}
	return mode
}

// checkPath fails unless a node has a path. It reports whether there is no error so far.
func (s *storageDecoder) checkPath(v *document.Value, what string, n *node) bool {
	if s.Err == nil && (n.path == "" || n.path == "/") {
		s.Fail(v.Line, "%s has no path", what)
	}
	return s.Err == nil
}

func (s *storageDecoder) directory(v *document.Value, what string) {
	var n node
	s.Object(v, what, s.node(&n, nil))
	if !s.checkPath(v, what, &n) {
		return
	}
	d := bootstrapdata.Directory{Path: n.path, User: n.user, Group: n.group, UID: n.uid, GID: n.gid, Mode: 0o755, KeepMode: n.mode == nil}
	if n.mode != nil {
		d.Mode = *n.mode
	}
	d.New = n.overwrite != nil && *n.overwrite
	s.config.Directories = append(s.config.Directories, d)
}

func (s *storageDecoder) link(v *document.Value, what string) {
	var n node
	l := bootstrapdata.Link{}
	s.Object(v, what, s.node(&n, document.Keys{
		"target": func(v *document.Value, what string) { l.Target = s.Text(v, what) },
		"hard":   func(v *document.Value, what string) { l.Hard = s.Flag(v, what) },
	}))
	if !s.checkPath(v, what, &n) {
		return
	}
	switch {
	case l.Target == "" || strings.Contains(l.Target, "\x00"):
		s.Fail(v.Line, "%s has no target", what)
	case l.Hard && !strings.HasPrefix(l.Target, "/"):
		s.Fail(v.Line, "%s.target %q is not an absolute path, which a hard link needs", what, l.Target)
	}
	if n.user+n.group != "" || n.uid != nil || n.gid != nil {
		s.Warn(v.Line, "%s: the owner of a link has no effect", what)
	}
	l.Path, l.Overwrite = n.path, n.overwrite != nil && *n.overwrite
	s.config.Links = append(s.config.Links, l)
}

// file reads a file. In 2.x "append" is a flag that appends the contents, in 3.x
// it is a list of contents to add.
func (s *storageDecoder) file(v *document.Value, what string) {
	var n node
	var content []byte
	given, appends := false, false
	known := s.node(&n, document.Keys{
		"contents": func(v *document.Value, what string) {
			data, found := s.contents(v, what)
			content, given = append(data, content...), found
		},
	})
	if s.major == 2 {
		given = true
		known["append"] = func(v *document.Value, what string) { appends = s.Flag(v, what) }
	} else {
		known["append"] = s.each(document.MaxEntries, func(v *document.Value, what string) {
			data, _ := s.contents(v, what)
			content = append(content, data...)
		})
	}
	s.Object(v, what, known)
	if !s.checkPath(v, what, &n) {
		return
	}
	f := bootstrapdata.File{Path: n.path, Content: content, User: n.user, Group: n.group, UID: n.uid, GID: n.gid, Mode: bootstrapdata.DefaultFileMode, Defer: true}
	f.Append = appends || s.major == 3 && !given
	s.setOverwrite(v, what, &n, &f, given)
	if n.mode != nil {
		f.Mode = *n.mode
	}
	s.addFile(f)
	if f.Path == "/etc/hostname" {
		setHostName(s.config, string(content))
	}
}

// setOverwrite sets whether a file that exists is an error, is replaced or is appended to.
func (s *storageDecoder) setOverwrite(v *document.Value, what string, n *node, f *bootstrapdata.File, given bool) {
	overwrite := s.major == 2
	if n.overwrite != nil {
		overwrite = *n.overwrite
	}
	switch {
	case s.major == 3 && overwrite && !given:
		s.Fail(v.Line, "%s has overwrite but no contents.source to overwrite with", what)
	case s.major == 2 && f.Append && n.overwrite != nil && overwrite:
		s.Fail(v.Line, "%s has both append and overwrite", what)
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

// setHostName sets the host name that a boot would read from /etc/hostname.
func setHostName(c *bootstrapdata.Config, content string) {
	if name := strings.TrimSpace(content); document.IsHost(name) && !strings.HasPrefix(name, "-") {
		c.HostName = &bootstrapdata.HostName{Name: name}
	}
}

// contents returns the content of a file. found is false without a source.
func (s *storageDecoder) contents(v *document.Value, what string) (data []byte, found bool) {
	source, compression, hash := "", "", ""
	line := v.Line
	s.Object(v, what, document.Keys{
		"source": func(v *document.Value, what string) { source, found, line = s.Text(v, what), true, v.Line },
		"compression": func(v *document.Value, what string) {
			if compression = s.Text(v, what); compression != "" && compression != "gzip" {
				s.Fail(v.Line, "%s %q is unknown; known is gzip", what, compression)
			}
		},
		"verification": func(v *document.Value, what string) {
			s.Object(v, what, document.Keys{"hash": func(v *document.Value, what string) { hash = s.Text(v, what) }})
		},
		"httpHeaders": func(*document.Value, string) {},
	})
	if s.Err != nil || !found {
		return nil, found
	}
	data, err := readDataURL(source)
	if err == nil && compression == "gzip" {
		data, err = document.Gunzip(data, s.left)
	}
	if err == nil {
		err = verify(data, hash)
	}
	if err != nil {
		s.Fail(line, "%s.source: %v", what, err)
		return nil, true
	}
	if s.left -= int64(len(data)); s.left < 0 {
		s.Fail(line, "the files together have more than the %d bytes allowed", document.MaxContent)
		return nil, true
	}
	return data, true
}
