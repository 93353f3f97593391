package erase

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is a fake /sys and /proc in the directory root.
type tree struct {
	t     *testing.T
	root  string
	minor int
}

func newTree(t *testing.T) *tree {
	t.Helper()
	tr := &tree{t: t, root: t.TempDir()}
	tr.write("/proc/self/mountinfo", "")
	tr.write("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")
	return tr
}

func (tr *tree) write(name, content string) {
	tr.t.Helper()
	path := filepath.Join(tr.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

// number returns the next device number.
func (tr *tree) number() string {
	tr.minor++
	return "8:" + strings.Repeat("1", tr.minor)
}

// block adds a device to /sys/block. Only a disk has the directory device.
func (tr *tree) block(name string, isDisk bool, files map[string]string) {
	tr.t.Helper()
	base := "/sys/block/" + name
	tr.write(base+"/dev", tr.number()+"\n")
	tr.write(base+"/size", "2048\n")
	for _, dir := range []string{"/slaves", "/holders"} {
		if err := os.MkdirAll(filepath.Join(tr.root, base+dir), 0o755); err != nil {
			tr.t.Fatal(err)
		}
	}
	if isDisk {
		tr.write(base+"/device/model", "model")
	}
	for file, content := range files {
		tr.write(base+"/"+file, content)
	}
}

func (tr *tree) disk(name string, files map[string]string) { tr.block(name, true, files) }

func (tr *tree) part(disk, name string) {
	tr.write("/sys/block/"+disk+"/"+name+"/partition", "1\n")
	tr.write("/sys/block/"+disk+"/"+name+"/dev", tr.number()+"\n")
}

// mapping adds a device on top of others.
func (tr *tree) mapping(name string, files map[string]string, slaves ...string) {
	tr.block(name, false, files)
	for _, slave := range slaves {
		tr.write("/sys/block/"+name+"/slaves/"+slave, "")
	}
}

func (tr *tree) text(name string) string {
	data, err := os.ReadFile(filepath.Join(tr.root, name))
	if err != nil {
		tr.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func (tr *tree) mount(number, source, point string) {
	old, _ := os.ReadFile(filepath.Join(tr.root, "/proc/self/mountinfo"))
	tr.write("/proc/self/mountinfo", string(old)+"36 35 "+number+" / "+point+" rw,noatime master:1 - ext4 "+source+" rw\n")
}

func (tr *tree) survey() map[string]disk {
	tr.t.Helper()
	found, err := disks(tr.root)
	if err != nil {
		tr.t.Fatal(err)
	}
	byName := map[string]disk{}
	for _, d := range found {
		byName[d.name] = d
	}
	return byName
}

func TestOperatingSystemIsKept(t *testing.T) {
	for name, build := range map[string]func(*tree){
		"a partition is mounted": func(tr *tree) {
			tr.part("sda", "sda1")
			tr.mount(tr.text("/sys/block/sda/sda1/dev"), "/dev/root", "/")
		},
		"the disk itself is mounted": func(tr *tree) { tr.mount(tr.text("/sys/block/sda/dev"), "/dev/sda", "/srv") },
		"swap": func(tr *tree) {
			tr.part("sda", "sda2")
			tr.write("/proc/swaps", "Filename\n/dev/sda2 partition 1 0 -2\n")
		},
		"swap named by a link": func(tr *tree) {
			tr.part("sda", "sda2")
			tr.write("/dev/sda2", "")
			tr.write("/dev/mapper/x", "")
			if err := os.Symlink("../sda2", filepath.Join(tr.root, "/dev/mapper/swap")); err != nil {
				t.Fatal(err)
			}
			tr.write("/proc/swaps", "Filename\n/dev/mapper/swap partition 1 0 -2\n")
		},
		"LVM": func(tr *tree) {
			tr.part("sda", "sda3")
			tr.mapping("dm-0", nil, "sda3")
			tr.mount(tr.text("/sys/block/dm-0/dev"), "/dev/mapper/vg-root", "/")
		},
		"LVM on md on partitions": func(tr *tree) {
			tr.part("sda", "sda3")
			tr.mapping("md0", nil, "sda3")
			tr.mapping("dm-0", nil, "md0")
			tr.mount(tr.text("/sys/block/dm-0/dev"), "/dev/mapper/vg-root", "/")
		},
		"a partition of an md": func(tr *tree) {
			tr.mapping("md0", nil, "sda")
			tr.part("md0", "md0p1")
			tr.mount(tr.text("/sys/block/md0/md0p1/dev"), "/dev/md0p1", "/")
		},
		"btrfs with a device number of its own": func(tr *tree) { tr.part("sda", "sda2"); tr.mount("0:31", "/dev/sda2", "/") },
		"the second device of a btrfs": func(tr *tree) {
			tr.part("sda", "sda2")
			tr.disk("sdz", nil)
			tr.write("/sys/fs/btrfs/uuid/devices/sda2", "")
			tr.write("/sys/fs/btrfs/uuid/devices/sdz", "")
			tr.mount("0:31", "/dev/sdz", "/")
		},
		"swap on LVM": func(tr *tree) {
			tr.mapping("dm-7", nil, "sda")
			tr.write("/proc/swaps", "Filename\n/dev/dm-7 partition 1 0 -2\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.disk("sda", nil)
			tr.disk("sdb", nil)
			build(tr)
			found := tr.survey()
			if found["sda"].keep == "" {
				t.Error("the operating system's disk would be erased")
			}
			if found["sdb"].keep != "" {
				t.Errorf("the data disk is kept: %s", found["sdb"].keep)
			}
		})
	}
}

func TestSurveyOfDisks(t *testing.T) {
	tr := newTree(t)
	tr.disk("sda", map[string]string{"device/vpd_pg80": "\x00\x80\x00\x08SCSI-1  "})
	tr.disk("nvme0n1", map[string]string{"device/serial": "NVME-1\n"})
	tr.disk("vda", map[string]string{"serial": "VIRTIO-1"})
	tr.disk("sdb", map[string]string{"removable": "1\n"})
	tr.disk("sdc", map[string]string{"ro": "1\n"})
	tr.disk("sr0", nil)
	tr.disk("nvme0c0n1", map[string]string{"hidden": "1\n"})
	tr.disk("sdd", map[string]string{"size": "0\n"})
	tr.block("loop0", false, nil)
	tr.block("zram0", false, nil)
	found := tr.survey()
	if len(found) != 5 {
		t.Errorf("found %v", found)
	}
	for name, serial := range map[string]string{"sda": "SCSI-1", "nvme0n1": "NVME-1", "vda": "VIRTIO-1"} {
		if d := found[name]; d.serial != serial || d.keep != "" || d.size != 1<<20 {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if found["sdb"].keep != "it is removable" || found["sdc"].keep != "it is read-only" {
		t.Errorf("removable %q, read-only %q", found["sdb"].keep, found["sdc"].keep)
	}
}

func TestHoldersAreOrderedFromTop(t *testing.T) {
	tr := newTree(t)
	tr.disk("sda", nil)
	tr.disk("sdb", nil)
	tr.part("sda", "sda1")
	tr.mapping("md0", nil, "sda1", "sdb")
	tr.part("md0", "md0p1")
	tr.mapping("dm-0", nil, "md0p1")
	tr.mapping("dm-1", nil, "dm-0", "sda1")
	got := tr.survey()["sda"].holders
	if want := []string{"dm-1", "dm-0", "md0p1", "md0"}; !slices.Equal(got, want) {
		t.Errorf("holders %v, want %v", got, want)
	}
	if got := tr.survey()["sdb"].holders; !slices.Equal(got, []string{"dm-1", "dm-0", "md0p1", "md0"}) {
		t.Errorf("holders of the other disk: %v", got)
	}
}

func TestNoDisksIfMountsAreUnknown(t *testing.T) {
	tr := newTree(t)
	tr.disk("sda", nil)
	if err := os.Remove(filepath.Join(tr.root, "/proc/self/mountinfo")); err != nil {
		t.Fatal(err)
	}
	if found, err := disks(tr.root); err == nil {
		t.Errorf("found %v although the mounts are unknown", found)
	}
}
