package erase

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sectorBytes is the unit of sizes in /sys/block, whatever the sector size of the disk.
const sectorBytes = 512

// removable is the reason for which a removable disk is kept.
const removable = "it is removable"

// disk is a whole disk.
type disk struct {
	name, serial string
	size         int64
	// keep is why the disk is kept; blank if it must be erased.
	keep string
	// holders are the mappings on top of the disk, the topmost first.
	holders []string
}

// survey is what /sys and /proc report of block devices. No device is opened.
type survey struct {
	root string
	// parents maps a device to those directly below it: a partition to its disk, a
	// mapping to its slaves.
	parents map[string][]string
	// names maps a device number, such as 8:0, to the name.
	names map[string]string
	// used maps a device in use to the reason.
	used map[string]string
}

// disks returns the whole disks of the host below root, sorted by name.
func disks(root string) ([]disk, error) {
	s := &survey{root: root, parents: map[string][]string{}, names: map[string]string{}, used: map[string]string{}}
	entries, err := os.ReadDir(s.path("/sys/block"))
	if err != nil {
		return nil, fmt.Errorf("listing the block devices: %w", err)
	}
	for _, entry := range entries {
		s.learn(entry.Name())
	}
	// Without them no disk is known to be unused.
	if err := errors.Join(s.mounted(), s.swapped()); err != nil {
		return nil, err
	}
	s.spread()
	var found []disk
	for _, entry := range entries {
		if s.isWholeDisk(entry.Name()) {
			found = append(found, s.disk(entry.Name()))
		}
	}
	slices.SortFunc(found, func(a, b disk) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

func (s *survey) path(name string) string { return filepath.Join(s.root, name) }

func (s *survey) text(name string) string {
	data, err := os.ReadFile(s.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Trim(strings.ToValidUTF8(string(data), ""), "\x00"))
}

func (s *survey) list(dir string) []string {
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// learn records a device of /sys/block, its partitions, and the devices below it.
func (s *survey) learn(name string) {
	base := "/sys/block/" + name
	s.names[s.text(base+"/dev")] = name
	s.parents[name] = s.list(base + "/slaves")
	for _, part := range s.partitions(name) {
		s.names[s.text(base+"/"+part+"/dev")] = part
		s.parents[part] = []string{name}
	}
}

func (s *survey) partitions(name string) []string {
	return slices.DeleteFunc(s.list("/sys/block/"+name), func(entry string) bool {
		_, err := os.Stat(s.path("/sys/block/" + name + "/" + entry + "/partition"))
		return err != nil
	})
}

// mounted records the devices of mounts; see proc_pid_mountinfo(5) for the fields.
func (s *survey) mounted() error {
	data, err := os.ReadFile(s.path("/proc/self/mountinfo"))
	if err != nil {
		return fmt.Errorf("looking up what is mounted: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, behind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(behind) < 2 {
			continue
		}
		reason := "mounted at " + strings.ReplaceAll(fields[4], `\040`, " ")
		if name, known := s.names[fields[2]]; known {
			s.use(name, reason)
		}
		// A btrfs has a device number of its own, but its source is one of its devices.
		s.use(s.device(behind[1]), reason)
	}
	return nil
}

// swapped records the devices of swap. The device of a swap file is recorded by
// mounted.
func (s *survey) swapped() error {
	data, err := os.ReadFile(s.path("/proc/swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without swap
	}
	if err != nil {
		return fmt.Errorf("looking up the swap: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			s.use(s.device(fields[0]), "swap")
		}
	}
	return nil
}

// device returns the kernel's name of a device file; blank if file is not below /dev.
func (s *survey) device(file string) string {
	if !strings.HasPrefix(file, "/dev/") {
		return ""
	}
	resolved, err := filepath.EvalSymlinks(s.path(file))
	if err != nil {
		resolved = file
	}
	// Names such as cciss/c0d0 have an exclamation mark in /sys.
	name := filepath.Base(resolved)
	if _, known := s.parents[name]; known {
		return name
	}
	return strings.ReplaceAll(strings.TrimPrefix(file, "/dev/"), "/", "!")
}

func (s *survey) use(name, reason string) {
	if _, known := s.parents[name]; known && s.used[name] == "" {
		s.used[name] = reason
	}
}

// spread marks the disks below used devices, and all devices of a btrfs, as used.
func (s *survey) spread() {
	for changed := true; changed; {
		before := len(s.used)
		for _, volume := range s.list("/sys/fs/btrfs") {
			members := s.list("/sys/fs/btrfs/" + volume + "/devices")
			for _, member := range members {
				if reason := s.used[member]; reason != "" {
					for _, other := range members {
						s.use(other, reason)
					}
				}
			}
		}
		for name, parents := range s.parents {
			if reason := s.used[name]; reason != "" {
				for _, parent := range parents {
					s.use(parent, reason)
				}
			}
		}
		changed = len(s.used) != before
	}
}

// isWholeDisk excludes virtual, optical, floppy and hidden devices. Virtual devices
// have no "device" link; a hidden device is one path of a multipath disk.
func (s *survey) isWholeDisk(name string) bool {
	base := "/sys/block/" + name
	if _, err := os.Stat(s.path(base + "/device")); err != nil {
		return false
	}
	return !strings.HasPrefix(name, "sr") && !strings.HasPrefix(name, "fd") && s.text(base+"/hidden") != "1" && s.size(name) > 0
}

func (s *survey) size(name string) int64 {
	sectors, _ := strconv.ParseInt(s.text("/sys/block/"+name+"/size"), 10, 64)
	return sectors * sectorBytes
}

func (s *survey) disk(name string) disk {
	base := "/sys/block/" + name
	d := disk{name: name, size: s.size(name), serial: s.serial(base)}
	switch {
	case s.used[name] != "":
		d.keep = "it is in use by the operating system: " + s.used[name]
	case s.text(base+"/removable") == "1":
		d.keep = removable
	case s.text(base+"/ro") == "1":
		d.keep = "it is read-only"
	default:
		d.holders = s.holders(name)
	}
	return d
}

// serial reads the serial number of an NVMe, virtio or SCSI disk. The SCSI page
// begins with a header of four bytes.
func (s *survey) serial(base string) string {
	for _, file := range []string{"/device/serial", "/serial"} {
		if serial := s.text(base + file); serial != "" {
			return serial
		}
	}
	if page, err := os.ReadFile(s.path(base + "/device/vpd_pg80")); err == nil && len(page) > 4 {
		return strings.TrimSpace(strings.Trim(strings.ToValidUTF8(string(page[4:]), ""), "\x00"))
	}
	return ""
}

// holders returns all devices on top of a disk and its partitions, the topmost first.
func (s *survey) holders(name string) []string {
	var found []string
	level := append(s.partitions(name), name)
	for len(level) > 0 {
		var above []string
		for holder, parents := range s.parents {
			isPartition := len(parents) == 1 && slices.Contains(s.partitions(parents[0]), holder)
			onTop := slices.ContainsFunc(parents, func(parent string) bool { return slices.Contains(level, parent) })
			if onTop && !slices.Contains(level, holder) && (!isPartition || slices.Contains(found, parents[0])) {
				above = append(above, holder)
			}
		}
		slices.Sort(above)
		above = slices.Compact(above)
		found = append(found, above...)
		level = above
	}
	slices.Reverse(found)
	// A device found on several levels is kept on the topmost one only.
	var unique []string
	for _, holder := range found {
		if !slices.Contains(unique, holder) {
			unique = append(unique, holder)
		}
	}
	return unique
}
