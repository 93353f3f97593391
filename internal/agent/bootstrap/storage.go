package bootstrap

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// kernelName is a device given without /dev, such as sda1, xvdb or nvme0n1.
var kernelName = regexp.MustCompile(`^(?:x?[shv]?d[a-z]+|nvme\d+n\d+(?:p\d+)?|mmcblk\d+(?:p\d+)?)\d*$`)

// device resolves an alias and insists on a path.
func (d *decoder) device(v *value, name, what string, aliases map[string]string) string {
	if to, ok := aliases[name]; ok {
		name = to
	}
	if !strings.HasPrefix(name, "/") || strings.ContainsAny(name, " \t\n") {
		d.fail(v.line, "%s: %q is not the path of a device; write one below /dev, best below /dev/disk", what, name)
	}
	return name
}

func (d *decoder) disks(v *value, aliases map[string]string) []Disk {
	var out []Disk
	for _, f := range d.mapping(v, "disk_setup") {
		what := "disk_setup." + f.name
		disk := Disk{Device: d.device(f.value, f.name, what, aliases), TableType: "mbr"}
		wanted := false
		for _, f := range d.mapping(f.value, what) {
			key := what + "." + f.name
			switch f.name {
			case "table_type":
				disk.TableType = strings.ToLower(d.text(f.value, key))
				if disk.TableType != "mbr" && disk.TableType != "gpt" {
					d.fail(f.value.line, "%s %q is unknown; known are mbr and gpt", key, disk.TableType)
				}
			case "overwrite":
				disk.Overwrite = f.value.truthy()
			case "layout":
				wanted = d.layout(f.value, key, &disk)
			default:
				d.warn(f.line, "unknown key %q of %s", f.name, what)
			}
		}
		if disk.TableType == "mbr" && len(disk.Partitions) > 4 {
			d.fail(f.line, "%s has %d partitions; a table of type mbr has room for 4, use gpt", what, len(disk.Partitions))
		}
		if wanted {
			out = append(out, disk)
		}
	}
	return out
}

// layout reads what the partitions should be; false when there is nothing to
// do.
func (d *decoder) layout(v *value, what string, disk *Disk) bool {
	switch {
	case !v.truthy():
		return false
	case v.kind == kindBool:
		disk.Whole = true
	case v.kind == kindString && strings.EqualFold(v.text, "remove"):
		disk.Remove = true
	default:
		total := 0.0
		for i, item := range d.list(v, what, 128) {
			p, size := Partition{}, item
			if item.kind == kindList {
				if len(item.items) != 2 {
					d.fail(item.line, "%s[%d] is not [percent, type]", what, i)
					return false
				}
				size, p.Type = item.items[0], d.scalarText(item.items[1], what)
			}
			percent, err := strconv.ParseFloat(strings.TrimSuffix(d.scalarText(size, what), "%"), 64)
			if err != nil || percent <= 0 || percent > 100 {
				d.fail(size.line, "%s[%d] %q is not a share in percent", what, i, size.python())
			}
			if total += percent; total > 100.5 {
				d.fail(size.line, "%s makes up more than 100 percent", what)
			}
			p.Percent = percent
			disk.Partitions = append(disk.Partitions, p)
		}
	}
	return true
}

func (d *decoder) filesystems(v *value, aliases map[string]string) []Filesystem {
	var out []Filesystem
	for i, item := range d.list(v, "fs_setup", maxEntries) {
		what := fmt.Sprintf("fs_setup[%d]", i)
		fs := Filesystem{Partition: "any"}
		for _, f := range d.mapping(item, what) {
			key, v := what+"."+f.name, f.value
			switch f.name {
			case "label":
				if v.truthy() {
					fs.Label = d.scalarText(v, key)
				}
			case "filesystem":
				fs.Type = d.text(v, key)
			case "device":
				fs.Device = d.text(v, key)
			case "partition":
				fs.Partition = strings.ToLower(d.scalarText(v, key))
			case "overwrite":
				fs.Overwrite = v.truthy()
			case "replace_fs":
				if v.truthy() {
					fs.Replace = d.text(v, key)
				}
			case "extra_opts":
				if v.kind == kindString {
					fs.Options = strings.Fields(v.text)
				} else {
					fs.Options = d.texts(v, key)
				}
			case "cmd":
				fs.Command = d.filesystemCommand(v, key)
			default:
				d.warn(f.line, "unknown key %q of %s", f.name, what)
			}
		}
		d.filesystemDevice(item, what, &fs, aliases)
		out = append(out, fs)
	}
	return out
}

func (d *decoder) filesystemCommand(v *value, what string) string {
	if v.kind == kindList {
		return Command{Args: d.texts(v, what)}.String()
	}
	return d.text(v, what)
}

func (d *decoder) filesystemDevice(v *value, what string, fs *Filesystem, aliases map[string]string) {
	device := fs.Device
	// "alias.2" names a partition and counts before the key of that name.
	if base, part, ok := strings.Cut(device, "."); ok && !strings.HasPrefix(device, "/") {
		device, fs.Partition = base, part
	}
	fs.Device = d.device(v, device, what+".device", aliases)
	if fs.Type == "" && fs.Command == "" {
		d.fail(v.line, "%s has neither filesystem nor cmd", what)
	}
	if strings.ContainsAny(fs.Type, "/ \t") {
		d.fail(v.line, "%s.filesystem %q is not a type of file system", what, fs.Type)
	}
	switch fs.Partition {
	case "any", "auto", "none":
	default:
		if n, err := strconv.Atoi(fs.Partition); err != nil || n < 0 {
			d.fail(v.line, "%s.partition %q is neither any, auto, none nor a number", what, fs.Partition)
		}
	}
}

// mountDefaults are the fields of a mount that names fewer.
func (d *decoder) mountDefaults(v *value) []string {
	defaults := []string{"", "", "auto", "defaults,nofail,_netdev", "0", "2"}
	if v == nil {
		return defaults
	}
	for i, item := range d.list(v, "mount_default_fields", len(defaults)) {
		if item.kind != kindNull {
			defaults[i] = d.scalarText(item, "mount_default_fields")
		}
	}
	return defaults
}

// mounts decodes lines of fstab. Unquoted numbers, as CABPK renders them, are
// taken as text. cloud-init's default options also require its own service,
// which a host need not have.
func (d *decoder) mounts(v, defaultFields *value, aliases map[string]string) []Mount {
	defaults := d.mountDefaults(defaultFields)
	var out []Mount
	for i, item := range d.list(v, "mounts", maxEntries) {
		what := fmt.Sprintf("mounts[%d]", i)
		if item.kind != kindList || len(item.items) == 0 || len(item.items) > 6 {
			d.fail(item.line, "%s is not a list of up to six fields of fstab", what)
			return nil
		}
		fields := append([]string{}, defaults...)
		for j, f := range item.items {
			if f.kind == kindNull {
				continue
			}
			fields[j] = d.scalarText(f, fmt.Sprintf("%s[%d]", what, j))
			if fields[j] == "" || strings.ContainsAny(fields[j], " \t\n\x00") {
				d.fail(f.line, "%s[%d] %q is empty or has white space in it; fstab wants \\040 for a space", what, j, fields[j])
			}
		}
		device := fields[0]
		if to, ok := aliases[device]; ok {
			device = to
		}
		if kernelName.MatchString(device) {
			device = "/dev/" + device
		}
		if fields[1] == "" || len(item.items) > 1 && item.items[1].kind == kindNull {
			// A device without a mount point takes back its earlier entries.
			kept := out[:0]
			for _, m := range out {
				if m.Device != device {
					kept = append(kept, m)
				}
			}
			out = kept
			continue
		}
		if fields[1] != "none" && !strings.HasPrefix(fields[1], "/") {
			d.fail(item.line, "%s: the mount point %q is not an absolute path", what, fields[1])
		}
		out = append(out, Mount{device, fields[1], fields[2], fields[3], fields[4], fields[5]})
	}
	return out
}
