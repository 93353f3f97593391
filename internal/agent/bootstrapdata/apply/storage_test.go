package apply_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
)

// hasBlocks makes lsblk list a device and its partitions, and wipefs find their content. Each
// line has the name, the type, the file system and its label.
func (m *machine) hasBlocks(device, lines string) {
	m.t.Helper()
	var listed strings.Builder
	for line := range strings.Lines(lines) {
		var name, kind, filesystem, label string
		if _, err := fmt.Sscanf(line, "NAME=%q TYPE=%q FSTYPE=%q LABEL=%q", &name, &kind, &filesystem, &label); err != nil {
			m.t.Fatalf("%s: %v", line, err)
		}
		fmt.Fprintf(&listed, "NAME=%q TYPE=%q\n", name, kind)
		found := ""
		if filesystem != "" {
			found = fmt.Sprintf(`{"type": %q, "label": %q, "usage": "filesystem"}`, filesystem, label)
		}
		m.hasSignatures(name, found)
	}
	m.answers["lsblk --pairs --paths --output NAME,TYPE "+device] = listed.String()
}

// hasSignatures makes wipefs find signatures on a device.
func (m *machine) hasSignatures(device, found string) {
	m.answers["wipefs --no-act --json --output TYPE,LABEL,USAGE "+device] = `{"signatures": [` + found + `]}`
}

func TestDisks(t *testing.T) {
	t.Parallel()
	const sdb = "NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"\" LABEL=\"\"\n"
	const part = "NAME=\"/dev/sdb1\" TYPE=\"part\" FSTYPE=\"ext4\" LABEL=\"x\"\n"
	for name, c := range map[string]struct {
		in, blocks, dump string
		table            string // the input of sfdisk, or "" if it is not called
		warns            int
	}{
		"empty, whole":         {"{layout: true}", sdb, "", "label: dos\n,,83\n", 0},
		"gpt with swap":        {"{table_type: gpt, layout: [25, [75, 82]]}", sdb, "", "label: gpt\n,512,0FC63DAF-8483-4772-8E79-3D69D8477DE4\n,,0657FD6D-A4AB-43C4-84E5-0933C84B4F4F\n", 0},
		"mbr of three":         {"{layout: [50, [25, 8e], 25]}", sdb, "", "label: dos\n,1024,83\n,512,8e\n,,83\n", 0},
		"same layout":          {"{layout: [[100, 83]], overwrite: true}", sdb + part, "/dev/sdb1 : start= 2048, size= 9, type=83, bootable\n", "", 0},
		"in use":               {"{layout: [50, 50]}", sdb + part, "/dev/sdb1 : start= 2048, type=83\n", "", 1},
		"in use, overwrite":    {"{layout: [50, 50], overwrite: true}", sdb + part, "/dev/sdb1 : start= 2048, type=83\n", "label: dos\n,1024,83\n,,83\n", 0},
		"file system on disk":  {"{layout: true}", strings.Replace(sdb, `FSTYPE=""`, `FSTYPE="xfs"`, 1), "", "", 1},
		"other type, the same": {"{layout: [[100, 82]], overwrite: true}", sdb + part, "/dev/sdb1 : type=83\n", "label: dos\n,,82\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.file("/dev/sdb", "")
			m.hasBlocks("/dev/sdb", c.blocks)
			m.answers["sfdisk --dump /dev/sdb"] = c.dump
			m.answers["blockdev --getsize64 /dev/sdb"] = "1048576\n"
			m.answers["blockdev --getss /dev/sdb"] = "512\n"
			m.answers["sfdisk --force --wipe always /dev/sdb"] = ""
			warnings := m.succeeds(header + "disk_setup:\n  /dev/sdb: " + c.in + "\n")
			if got := m.stdin["sfdisk --force --wipe always /dev/sdb"]; got != c.table {
				t.Errorf("got the partition table %q, want %q", got, c.table)
			}
			if len(warnings) != c.warns {
				t.Errorf("got the warnings %q", warnings)
			}
		})
	}
}

func TestFilesystems(t *testing.T) {
	t.Parallel()
	disk := func(name, fs, label string) string {
		return "NAME=\"" + name + "\" TYPE=\"disk\" FSTYPE=\"" + fs + "\" LABEL=\"" + label + "\"\n"
	}
	part := func(name, fs, label string) string {
		return strings.Replace(disk(name, fs, label), "disk", "part", 1)
	}
	for name, c := range map[string]struct {
		in     string
		blocks map[string]string
		want   string // the mkfs command, or "" for none
	}{
		"numbered":                    {"partition: 1", map[string]string{"/dev/sdb1": part("/dev/sdb1", "", "")}, "mkfs.ext4 -L data /dev/sdb1"},
		"numbered, there already":     {"partition: 1", map[string]string{"/dev/sdb1": part("/dev/sdb1", "ext4", "data")}, ""},
		"numbered, other label":       {"partition: 1", map[string]string{"/dev/sdb1": part("/dev/sdb1", "ext4", "else")}, "mkfs.ext4 -L data /dev/sdb1"},
		"numbered, overwrite":         {"partition: 1, overwrite: true, extra_opts: [-q]", map[string]string{"/dev/sdb1": part("/dev/sdb1", "ext4", "data")}, "mkfs.ext4 -L data -F -q /dev/sdb1"},
		"none formats again":          {"partition: none, overwrite: false", map[string]string{"/dev/sdb": disk("/dev/sdb", "ext4", "data")}, "mkfs.ext4 -L data -F /dev/sdb"},
		"auto, empty disk":            {"partition: auto", map[string]string{"/dev/sdb": disk("/dev/sdb", "", "")}, "mkfs.ext4 -L data -F /dev/sdb"},
		"auto, empty partition":       {"partition: auto", map[string]string{"/dev/sdb": disk("/dev/sdb", "", "") + part("/dev/sdb1", "", ""), "/dev/sdb1": part("/dev/sdb1", "", "")}, "mkfs.ext4 -L data /dev/sdb1"},
		"auto, there already":         {"partition: auto", map[string]string{"/dev/sdb": disk("/dev/sdb", "", "") + part("/dev/sdb1", "ext4", "data")}, ""},
		"auto, other label":           {"partition: auto", map[string]string{"/dev/sdb": disk("/dev/sdb", "", "") + part("/dev/sdb1", "ext4", "else")}, ""},
		"any, label does not matter":  {"partition: any", map[string]string{"/dev/sdb": disk("/dev/sdb", "", "") + part("/dev/sdb1", "ext4", "else")}, ""},
		"any, replaced":               {"replace_fs: ntfs", map[string]string{"/dev/sdb": disk("/dev/sdb", "", "") + part("/dev/sdb1", "ntfs", "x"), "/dev/sdb1": part("/dev/sdb1", "ntfs", "x")}, "mkfs.ext4 -L data /dev/sdb1"},
		"a command of the document's": {"partition: none, cmd: 'make %(filesystem)s %(label)s %(device)s'", nil, "/bin/sh -c make ext4 data /dev/sdb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.file("/dev/sdb", "")
			m.file("/dev/sdb1", "")
			for device, answer := range c.blocks {
				m.hasBlocks(device, answer)
			}
			m.answers[c.want] = ""
			m.succeeds(header + "fs_setup:\n- {device: /dev/sdb, filesystem: ext4, label: data, " + c.in + "}\n")
			made := ""
			for _, args := range m.commands {
				if args[0] != "lsblk" && args[0] != "wipefs" {
					made = strings.Join(args, " ")
				}
			}
			if made != c.want {
				t.Errorf("got %q, want %q", made, c.want)
			}
		})
	}
}

// A partition table that the kernel has not read counts as well, unless it is empty.
func TestUnreadPartitionTable(t *testing.T) {
	t.Parallel()
	const table = `{"type": "gpt", "label": null, "usage": "partition-table"}`
	for name, c := range map[string]struct {
		document, dump, command string
		called                  bool
	}{
		"disk in use":       {"disk_setup:\n  /dev/sdb: {layout: [50, 50]}\n", "/dev/sdb1 : start= 2048, type=83\n", "sfdisk --force --wipe always /dev/sdb", false},
		"empty table":       {"disk_setup:\n  /dev/sdb: {layout: [50, 50]}\n", "label: gpt\n", "sfdisk --force --wipe always /dev/sdb", true},
		"file system":       {"fs_setup:\n- {device: /dev/sdb, filesystem: ext4, label: data, partition: auto}\n", "/dev/sdb1 : start= 2048, type=83\n", "mkfs.ext4 -L data -F /dev/sdb", false},
		"file system, none": {"fs_setup:\n- {device: /dev/sdb, filesystem: ext4, label: data, partition: auto}\n", "label: gpt\n", "mkfs.ext4 -L data -F /dev/sdb", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.file("/dev/sdb", "")
			m.hasBlocks("/dev/sdb", "NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"\" LABEL=\"\"\n")
			m.hasSignatures("/dev/sdb", table)
			m.answers["sfdisk --dump /dev/sdb"] = c.dump
			m.answers["blockdev --getsize64 /dev/sdb"] = "1048576\n"
			m.answers["blockdev --getss /dev/sdb"] = "512\n"
			m.answers[c.command] = ""
			m.succeeds(header + c.document)
			if _, called := m.stdin[c.command]; called != c.called {
				t.Errorf("got %q", m.commands)
			}
		})
	}
}

func TestMissingDevice(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.fails(header + "disk_setup:\n  /dev/sdx: {layout: true}\n")
	if f.Step != "disk_setup /dev/sdx" || !strings.Contains(f.Reason, "does not exist on this host") {
		t.Errorf("got %v", f)
	}
}

func TestMounts(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.file("/dev/sdb1", "")
	m.answers["mount /optional"] = "FAIL"
	m.answers["swapon /swap.img"] = ""
	before := m.read("/etc/fstab")
	warnings := m.succeeds(header + `
mounts:
- [sdb, /data, ext4, defaults, 0, 0]
- [tmpfs, /scratch, tmpfs, size=1m, 0, 0]
- [/dev/sdz, /optional]
- [/dev/sdy, /later, ext4, noauto]
- [/swap.img, none, swap, sw, 0, 0]
`)
	want := before + `/dev/sdb1	/data	ext4	defaults,comment=cloudconfig	0	0
tmpfs	/scratch	tmpfs	size=1m,comment=cloudconfig	0	0
/dev/sdz	/optional	auto	defaults,nofail,_netdev,comment=cloudconfig	0	2
/dev/sdy	/later	ext4	noauto,comment=cloudconfig	0	2
/swap.img	none	swap	sw,comment=cloudconfig	0	0
`
	if got := m.read("/etc/fstab"); got != want {
		t.Errorf("got the fstab\n%s", got)
	}
	commands := [][]string{{"systemctl", "daemon-reload"}, {"mount", "/data"}, {"mount", "/scratch"}, {"mount", "/optional"}, {"swapon", "/swap.img"}}
	if !reflect.DeepEqual(m.commands, commands) {
		t.Errorf("got %q", m.commands)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "/optional did not succeed") {
		t.Errorf("got the warnings %q", warnings)
	}
	m.file("/proc/swaps", "Filename Type\n/swap.img file\n")
	m.answers["swapoff /swap.img"] = ""
	m.commands = nil
	if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
		t.Fatal(err)
	}
	if undone := [][]string{{"umount", "/scratch"}, {"umount", "/data"}, {"swapoff", "/swap.img"}}; !reflect.DeepEqual(m.commands, undone) {
		t.Errorf("got %q", m.commands)
	}
	if got := m.read("/etc/fstab"); got != before {
		t.Errorf("got the fstab\n%s", got)
	}
}

// Undo does not delete mounted files. A bind mount from the same file system looks like
// a directory.
func TestUndoKeepsMountedFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.file("/srv/shared", "")
	before := m.tree()
	m.succeeds(header + `
mounts: [[/srv/shared, /data/bind, none, bind]]
write_files: [{path: /data/mine, content: x}]
users: [kube, {name: odd, homedir: /srv/odd/}]
`)
	foreign := []string{"/data/bind/foreign", "/home/kube/share/foreign", "/srv/odd/share/foreign"}
	for _, file := range foreign {
		m.file(file, "x")
	}
	m.file("/proc/self/mountinfo", rootMount+"2 1 8:1 /srv/a /data/bind rw - ext4 /dev/sda1 rw\n"+
		"3 1 8:1 /srv/b /home/kube/share rw - ext4 /dev/sda1 rw\n4 1 8:1 /srv/b /srv/odd/share rw - ext4 /dev/sda1 rw\n")
	m.answers["umount /data/bind"] = "FAIL"
	err := apply.Undo(t.Context(), m.manifest(), m.options())
	for _, point := range []string{"/data/bind", "/home/kube/share", "/srv/odd/share"} {
		if err == nil || !strings.Contains(err.Error(), point+" is mounted; unmount it") {
			t.Errorf("got %v", err)
		}
	}
	for _, file := range foreign {
		if m.read(file) != "x" {
			t.Errorf("Undo changed %s", file)
		}
	}
	if _, err := os.Stat(m.realPath("data/mine")); err == nil {
		t.Error("Undo did not remove the file of the bootstrap")
	}
	// After an administrator unmounts the file systems, Undo succeeds.
	delete(m.answers, "umount /data/bind")
	m.file("/proc/self/mountinfo", rootMount)
	for range 2 {
		if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
			t.Fatal(err)
		}
		compare(t, m.tree(), before)
	}
}

func TestMountThatMustSucceed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.answers["mount /data"] = "FAIL"
	if f := m.fails(header + "mounts:\n- [/dev/sdb, /data, ext4, defaults]\n"); f.Step != "mount /dev/sdb /data" {
		t.Errorf("got %v", f)
	}
}

func TestTimeServices(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.program("chronyd")
	m.file("/etc/chrony/chrony.conf", "pool of the image\n")
	before := m.tree()
	m.succeeds(header + "ntp: {servers: [s], pools: [p]}\n")
	if got := m.read("/etc/chrony/chrony.conf"); !strings.Contains(got, "pool p iburst\nserver s iburst\n") || strings.Contains(got, "image") {
		t.Errorf("got %q", got)
	}
	reload := [][]string{{"systemctl", "reload-or-restart", "chrony"}}
	if !reflect.DeepEqual(m.commands, reload) {
		t.Errorf("got %q", m.commands)
	}
	m.commands = nil
	if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
		t.Fatal(err)
	}
	compare(t, m.tree(), before)
	if !reflect.DeepEqual(m.commands, reload) {
		t.Errorf("got %q", m.commands)
	}
}
