package cloudconfig

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// kernelName matches a device without /dev, such as sda1, xvdb or nvme0n1.
var kernelName = regexp.MustCompile(`^(?:x?[shv]?d[a-z]+|nvme\d+n\d+(?:p\d+)?|mmcblk\d+(?:p\d+)?)\d*$`)

func (d *decoder) disks(v *document.Value, aliases map[string]string) []bootstrapdata.Disk {
	var out []bootstrapdata.Disk
	for _, f := range d.Mapping(v, "disk_setup") {
		what := "disk_setup." + f.Name
		disk := bootstrapdata.Disk{Device: d.Device(f.Value, f.Name, what, aliases), TableType: "mbr"}
		wanted := false
		for _, f := range d.Mapping(f.Value, what) {
			key := what + "." + f.Name
			switch f.Name {
			case "table_type":
				disk.TableType = strings.ToLower(d.Text(f.Value, key))
				if disk.TableType != "mbr" && disk.TableType != "gpt" {
					d.Fail(f.Value.Line, "%s %q is unknown; known are mbr and gpt", key, disk.TableType)
				}
			case "overwrite":
				disk.Overwrite = f.Value.IsTruthy()
			case "layout":
				wanted = d.layout(f.Value, key, &disk)
			default:
				d.Warn(f.Line, "unknown key %q of %s", f.Name, what)
			}
		}
		if disk.TableType == "mbr" && len(disk.Partitions) > 4 {
			d.Fail(f.Line, "%s has %d partitions; a table of type mbr has room for 4, use gpt", what, len(disk.Partitions))
		}
		if wanted {
			out = append(out, disk)
		}
	}
	return out
}

// layout reads the partitions of a disk. It returns false when the disk is not
// changed.
func (d *decoder) layout(v *document.Value, what string, disk *bootstrapdata.Disk) bool {
	switch {
	case !v.IsTruthy():
		return false
	case v.Kind == document.Bool:
		disk.Whole = true
	case v.Kind == document.String && strings.EqualFold(v.Text, "remove"):
		disk.Remove = true
	default:
		total := 0.0
		for i, item := range d.List(v, what, 128) {
			p, size := bootstrapdata.Partition{}, item
			if item.Kind == document.List {
				if len(item.Items) != 2 {
					d.Fail(item.Line, "%s[%d] is not [percent, type]", what, i)
					return false
				}
				size, p.Type = item.Items[0], d.ScalarText(item.Items[1], what)
			}
			percent, err := strconv.ParseFloat(strings.TrimSuffix(d.ScalarText(size, what), "%"), 64)
			if err != nil || percent <= 0 || percent > 100 {
				d.Fail(size.Line, "%s[%d] %q is not a share in percent", what, i, size.PythonString())
			}
			if total += percent; total > 100.5 {
				d.Fail(size.Line, "%s makes up more than 100 percent", what)
			}
			p.Percent = percent
			disk.Partitions = append(disk.Partitions, p)
		}
	}
	return true
}

func (d *decoder) filesystems(v *document.Value, aliases map[string]string) []bootstrapdata.Filesystem {
	var out []bootstrapdata.Filesystem
	for i, item := range d.List(v, "fs_setup", document.MaxEntries) {
		what := fmt.Sprintf("fs_setup[%d]", i)
		fs := bootstrapdata.Filesystem{Partition: "any"}
		for _, f := range d.Mapping(item, what) {
			key, v := what+"."+f.Name, f.Value
			switch f.Name {
			case "label":
				if v.IsTruthy() {
					fs.Label = d.ScalarText(v, key)
				}
			case "filesystem":
				fs.Type = d.Text(v, key)
			case "device":
				fs.Device = d.Text(v, key)
			case "partition":
				fs.Partition = strings.ToLower(d.ScalarText(v, key))
			case "overwrite":
				fs.Overwrite = v.IsTruthy()
			case "replace_fs":
				if v.IsTruthy() {
					fs.Replace = d.Text(v, key)
				}
			case "extra_opts":
				if v.Kind == document.String {
					fs.Options = strings.Fields(v.Text)
				} else {
					fs.Options = d.ScalarTexts(v, key)
				}
			case "cmd":
				fs.Command = d.filesystemCommand(v, key)
			default:
				d.Warn(f.Line, "unknown key %q of %s", f.Name, what)
			}
		}
		d.filesystemDevice(item, what, &fs, aliases)
		out = append(out, fs)
	}
	return out
}

func (d *decoder) filesystemCommand(v *document.Value, what string) string {
	if v.Kind == document.List {
		return bootstrapdata.Command{Args: d.ScalarTexts(v, what)}.String()
	}
	return d.Text(v, what)
}

func (d *decoder) filesystemDevice(v *document.Value, what string, fs *bootstrapdata.Filesystem, aliases map[string]string) {
	device := fs.Device
	// "alias.2" names a partition and takes precedence over the key "partition".
	if base, part, ok := strings.Cut(device, "."); ok && !strings.HasPrefix(device, "/") {
		device, fs.Partition = base, part
	}
	fs.Device = d.Device(v, device, what+".device", aliases)
	if fs.Type == "" && fs.Command == "" {
		d.Fail(v.Line, "%s has neither filesystem nor cmd", what)
	}
	if strings.ContainsAny(fs.Type, "/ \t") {
		d.Fail(v.Line, "%s.filesystem %q is not a type of file system", what, fs.Type)
	}
	switch fs.Partition {
	case "any", "auto", "none":
	default:
		if n, err := strconv.Atoi(fs.Partition); err != nil || n < 0 {
			d.Fail(v.Line, "%s.partition %q is neither any, auto, none nor a number", what, fs.Partition)
		}
	}
}

// mountDefaults returns the defaults of missing mount fields.
func (d *decoder) mountDefaults(v *document.Value) []string {
	defaults := []string{"", "", "auto", "defaults,nofail,_netdev", "0", "2"}
	if v == nil {
		return defaults
	}
	for i, item := range d.List(v, "mount_default_fields", len(defaults)) {
		if item.Kind != document.Null {
			defaults[i] = d.ScalarText(item, "mount_default_fields")
		}
	}
	return defaults
}

// mounts decodes lines of fstab. Unquoted numbers, as CABPK renders them, count as
// text. cloud-init's default options also require its own service, which may be
// missing on the host, so the defaults here leave it out.
func (d *decoder) mounts(v, defaultFields *document.Value, aliases map[string]string) []bootstrapdata.Mount {
	defaults := d.mountDefaults(defaultFields)
	var out []bootstrapdata.Mount
	for i, item := range d.List(v, "mounts", document.MaxEntries) {
		what := fmt.Sprintf("mounts[%d]", i)
		if item.Kind != document.List || len(item.Items) == 0 || len(item.Items) > 6 {
			d.Fail(item.Line, "%s is not a list of up to six fields of fstab", what)
			return nil
		}
		fields := append([]string{}, defaults...)
		for j, f := range item.Items {
			if f.Kind == document.Null {
				continue
			}
			fields[j] = d.ScalarText(f, fmt.Sprintf("%s[%d]", what, j))
			if fields[j] == "" || strings.ContainsAny(fields[j], " \t\n\x00") {
				d.Fail(f.Line, "%s[%d] %q is empty or has white space in it; fstab wants \\040 for a space", what, j, fields[j])
			}
		}
		device := fields[0]
		if to, ok := aliases[device]; ok {
			device = to
		}
		if kernelName.MatchString(device) {
			device = "/dev/" + device
		}
		if fields[1] == "" || len(item.Items) > 1 && item.Items[1].Kind == document.Null {
			// A device without a mount point removes its earlier entries.
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
			d.Fail(item.Line, "%s: the mount point %q is not an absolute path", what, fields[1])
		}
		out = append(out, bootstrapdata.Mount{Device: device, Point: fields[1], Type: fields[2], Options: fields[3], Dump: fields[4], Pass: fields[5]})
	}
	return out
}
