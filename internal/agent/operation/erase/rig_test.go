package erase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// lab has disks and a fake /sys that lists them. The disks are loop devices if the
// tests run as root and the machine supports them, otherwise files. Only loop
// devices show how the kernel behaves.
type lab struct {
	*tree
	dir string
	// real is true if the disks are loop devices.
	real bool
	// dead are the files that are read-only and the loop devices that were removed.
	dead map[string]bool
}

const diskBytes = 36 << 20

// Where the magic number and the label of an ext4 are: in its superblock, which begins at 1024.
const (
	ext4Magic = 1024 + 0x38
	ext4Label = 1024 + 0x78
)

// required is the environment variable that makes tests fail without loop devices.
const required = "REQUIRE_LOOP_DEVICES"

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{tree: newTree(t), dir: t.TempDir(), dead: map[string]bool{}}
	l.real = os.Geteuid() == 0 && exec.CommandContext(t.Context(), "losetup", "--find").Run() == nil
	if !l.real {
		if os.Getenv(required) == "true" {
			t.Fatal("there are no loop devices: run as root where losetup finds one")
		}
		t.Log("NOT RUN on disks, but on files: this needs root and losetup")
	}
	return l
}

func (l *lab) run(args ...string) string {
	l.t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(l.t.Context()), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// path returns a disk's device file.
func (l *lab) path(name string) string {
	if l.real {
		return "/dev/" + name
	}
	return filepath.Join(l.dir, name)
}

// loop creates a disk full of data and returns its name.
func (l *lab) loop(serial string, flags ...string) string {
	l.t.Helper()
	file := filepath.Join(l.dir, serial)
	if err := os.WriteFile(file, bytes.Repeat([]byte("secret, "), diskBytes/8), 0o600); err != nil {
		l.t.Fatal(err)
	}
	files := map[string]string{"size": fmt.Sprintln(diskBytes / sectorBytes), "device/serial": serial}
	name := serial
	if l.real {
		device := l.run(append(append([]string{"losetup", "--find", "--show"}, flags...), file)...)
		l.t.Cleanup(func() {
			if !l.dead[device] {
				l.run("losetup", "--detach", device)
			}
		})
		name = filepath.Base(device)
		number, err := os.ReadFile("/sys/block/" + name + "/dev")
		if err != nil {
			l.t.Fatal(err)
		}
		files["dev"] = string(number)
	}
	l.disk(name, files)
	return name
}

// readOnly creates a disk that cannot be written to, although /sys does not list it
// as read-only.
func (l *lab) readOnly(serial string) string {
	l.t.Helper()
	if l.real {
		return l.loop(serial, "--read-only")
	}
	name := l.loop(serial)
	l.dead[name] = true
	return name
}

// remove removes a disk that /sys still lists.
func (l *lab) remove(name string) {
	l.t.Helper()
	if l.real {
		l.run("losetup", "--detach", l.path(name))
		l.dead[l.path(name)] = true
	} else if err := os.Remove(l.path(name)); err != nil {
		l.t.Fatal(err)
	}
}

// partition creates one partition of which the kernel knows.
func (l *lab) partition(name string) {
	l.t.Helper()
	// An MBR partition table with one entry, from sector 2048.
	table := make([]byte, 512)
	entry := table[446:]
	entry[4] = 0x83
	copy(entry[8:], []byte{0, 8, 0, 0, 0, 64, 0, 0})
	table[510], table[511] = 0x55, 0xaa
	l.overwrite(name, 0, table)
	if !l.real {
		return
	}
	// A kernel without support for MBR needs partx.
	if !l.partitioned(name) {
		l.run("partx", "--add", l.path(name))
	}
	if !l.partitioned(name) {
		l.t.Fatal("the kernel does not know the partition")
	}
}

// partitioned reports whether the kernel has a partition of the disk.
func (l *lab) partitioned(name string) bool {
	_, err := os.Stat("/sys/block/" + name + "/" + name + "p1")
	return err == nil
}

func (l *lab) overwrite(name string, offset int64, data []byte) {
	l.t.Helper()
	file, err := os.OpenFile(l.path(name), os.O_WRONLY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := file.WriteAt(data, offset); err != nil {
		l.t.Fatal(err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		l.t.Fatal(err)
	}
}

// labelled makes a file system with a label on a disk. A file gets only what names it.
func (l *lab) labelled(name string) {
	l.t.Helper()
	const label = "keepsakes"
	if l.real {
		l.run("mkfs.ext4", "-q", "-F", "-L", label, l.path(name))
	} else {
		l.overwrite(name, ext4Magic, []byte{0x53, 0xef})
		l.overwrite(name, ext4Label, []byte(label))
	}
	file, err := os.Open(l.path(name))
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	is := make([]byte, len(label))
	if _, err := file.ReadAt(is, ext4Label); err != nil || string(is) != label {
		l.t.Fatalf("the label is %q: %v", is, err)
	}
}

// mounted creates a file system on a disk, mounts it, and copies the list of mounts
// to the fake /proc.
func (l *lab) mounted(name string) {
	l.t.Helper()
	if !l.real {
		l.mount(l.text("/sys/block/"+name+"/dev"), "/dev/"+name, "/")
		return
	}
	l.run("mkfs.ext4", "-q", "-F", l.path(name))
	point := filepath.Join(l.dir, "mnt-"+name)
	if err := os.Mkdir(point, 0o700); err != nil {
		l.t.Fatal(err)
	}
	l.run("mount", l.path(name), point)
	l.t.Cleanup(func() { l.run("umount", point) })
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		l.t.Fatal(err)
	}
	l.write("/proc/self/mountinfo", string(table))
}

func (l *lab) isZero(name string) bool {
	l.t.Helper()
	file, err := os.Open(l.path(name))
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(file)
	if err != nil || len(data) != diskBytes {
		l.t.Fatalf("read %d bytes: %v", len(data), err)
	}
	return len(bytes.Trim(data, "\x00")) == 0
}

// open opens a disk as openDevice does; a disk may be a file.
func (l *lab) open(path string) (device, error) {
	if l.real {
		return openDevice(path)
	}
	mode := os.O_RDWR
	if l.dead[filepath.Base(path)] {
		mode = os.O_RDONLY
	}
	file, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	return &plainFile{blockDevice{file}}, nil
}

// plainFile is a device that is a file, for which Flush is fsync.
type plainFile struct{ blockDevice }

func (f *plainFile) Flush() error { return f.file.Sync() }

func (l *lab) eraser() *Eraser {
	e := &Eraser{Root: l.root, open: l.open}
	if !l.real {
		e.Dev = l.dir
	}
	return e
}

func (l *lab) erase(e *Eraser, method string) map[string]protocol.ErasedDisk {
	l.t.Helper()
	list, err := e.Erase(l.t.Context(), method, nil, func(string) error { return nil }, func(string) {})
	if err != nil {
		l.t.Fatal(err)
	}
	byName := map[string]protocol.ErasedDisk{}
	for _, d := range list {
		byName[d.Name] = d
	}
	return byName
}
