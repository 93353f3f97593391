package erase

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Target is a disk that an installation would overwrite.
type Target struct {
	Name, Model, Serial string
	SizeBytes           int64
	Partitions          []string
	// InUse is why the disk must not be overwritten; blank if it may be overwritten.
	InUse string
}

// Describe returns the disk of a device file, or of a link to one, below root.
func Describe(root, device string) (Target, error) {
	found, err := disks(root)
	if err != nil {
		return Target{}, err
	}
	s := &survey{root: root}
	name := filepath.Base(device)
	if resolved, err := filepath.EvalSymlinks(s.path(device)); err == nil {
		name = filepath.Base(resolved)
	}
	for _, d := range found {
		if d.name != name {
			continue
		}
		target := Target{
			Name: d.name, Serial: d.serial, SizeBytes: d.size, Model: s.text("/sys/block/" + d.name + "/device/model"),
			Partitions: s.partitions(d.name), InUse: d.keep,
		}
		if target.InUse == removable {
			target.InUse = "" // small hosts run from a memory card
		}
		if target.InUse == "" && len(d.holders) > 0 {
			target.InUse = "it is held by " + strings.Join(d.holders, ", ")
		}
		return target, nil
	}
	return Target{}, fmt.Errorf("%s is no disk of this host", device)
}

// String describes the disk and its partitions, which an installation destroys.
func (t Target) String() string {
	text := fmt.Sprintf("disk %s, %s, serial number %q, %d MiB", t.Name, t.Model, t.Serial, t.SizeBytes>>20)
	if len(t.Partitions) == 0 {
		return text + ", without partitions that the kernel knows"
	}
	return text + ", with partitions " + strings.Join(t.Partitions, ", ")
}
