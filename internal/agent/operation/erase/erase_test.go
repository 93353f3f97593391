package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestErasesDataDisksOnly(t *testing.T) {
	for _, method := range []string{protocol.EraseZero, protocol.EraseDiscard} {
		t.Run(method, func(t *testing.T) {
			l := newLab(t)
			data, parted, system := l.loop("data"), l.loop("parted", "--partscan"), l.loop("system")
			l.partition(parted)
			l.mounted(system)
			got := l.erase(l.eraser(), method)
			for name, want := range map[string]protocol.ErasureResult{
				data: protocol.Erased, parted: protocol.Erased, system: protocol.ErasureKept,
			} {
				if got[name].Result != want {
					t.Errorf("%s: %+v, want %s", name, got[name], want)
				}
				if l.isZero(name) != (want == protocol.Erased) {
					t.Errorf("%s is zero: %t", name, l.isZero(name))
				}
			}
			if l.partitioned(parted) {
				t.Error("the kernel still has the partition")
			}
			if d := got[data]; d.Serial != "data" || d.SizeBytes != diskBytes || d.Message == "" {
				t.Errorf("reported %+v", d)
			}
		})
	}
}

// The kernel protects a disk in use even if the survey does not find the use.
func TestKernelRefusesMountedDisk(t *testing.T) {
	l := newLab(t)
	system := l.loop("system")
	l.mounted(system)
	l.write("/proc/self/mountinfo", "")
	if !l.real {
		if _, err := openDevice(l.path(system)); err == nil {
			t.Error("opened a file that is not a device")
		}
		return
	}
	got := l.erase(l.eraser(), protocol.EraseZero)[system]
	if got.Result != protocol.ErasureFails || !strings.Contains(got.Message, "busy") || l.isZero(system) {
		t.Errorf("got %+v", got)
	}
	// Another program has opened the disk exclusively.
	opened := l.loop("opened")
	holder, err := openDevice(l.path(opened))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	if got := l.erase(l.eraser(), protocol.EraseZero)[opened]; got.Result != protocol.ErasureFails || l.isZero(opened) {
		t.Errorf("a disk that another program has opened: %+v", got)
	}
}

func TestFailedDisks(t *testing.T) {
	l := newLab(t)
	readOnly, short, removed, healthy := l.readOnly("read-only"), l.loop("short"), l.loop("removed"), l.loop("healthy")
	l.write("/sys/block/"+short+"/size", fmt.Sprintln(2*diskBytes/sectorBytes))
	l.remove(removed)
	got := l.erase(l.eraser(), protocol.EraseZero)
	for name, message := range map[string]string{readOnly: "", short: "bytes", removed: ""} {
		if d := got[name]; d.Result != protocol.ErasureFails || d.Message == "" || !strings.Contains(d.Message, message) {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if got[healthy].Result != protocol.Erased || !l.isZero(healthy) {
		t.Errorf("a healthy disk was not erased: %+v", got[healthy])
	}
}

func TestRemovesUnusedMappings(t *testing.T) {
	l := newLab(t)
	data := l.loop("data")
	l.mapping("dm-0", map[string]string{"dm/name": "vg-osd\n"}, data)
	l.mapping("md0", map[string]string{"md/level": "raid1\n"}, "dm-0")
	ran := &commands{}
	e := l.eraser()
	e.Commands = ran
	if got := l.erase(e, protocol.EraseZero)[data]; got.Result != protocol.Erased {
		t.Errorf("got %+v", got)
	}
	if want := "mdadm --stop " + e.device("md0") + "\ndmsetup remove vg-osd\n"; ran.lines != want {
		t.Errorf("ran\n%s", ran.lines)
	}
	ran.err = errors.New("Device or resource busy")
	got := l.erase(e, protocol.EraseZero)[data]
	if got.Result != protocol.ErasureFails || !strings.Contains(got.Message, "held by md0") || !strings.Contains(got.Message, "busy") {
		t.Errorf("got %+v", got)
	}
	l.mapping("bcache0", nil, "md0")
	ran.err = nil
	if got := l.erase(e, protocol.EraseZero)[data]; got.Result != protocol.ErasureFails || !strings.Contains(got.Message, "held by bcache0") {
		t.Errorf("got %+v", got)
	}
}

// commands records command lines.
type commands struct {
	lines string
	err   error
}

func (c *commands) Run(_ context.Context, _ string, args ...string) (string, error) {
	c.lines += strings.Join(args, " ") + "\n"
	return "", c.err
}

// A disk without a serial number cannot be identified after a boot, because its
// name may change.
func TestDiskWithoutSerialNumberIsNotRecorded(t *testing.T) {
	l := newLab(t)
	unnumbered := l.loop("unnumbered")
	l.write("/sys/block/"+unnumbered+"/device/serial", "")
	_, err := l.eraser().Erase(t.Context(), protocol.EraseZero, Done{"": true}, func(key string) error {
		return errors.New("recorded " + key)
	}, func(string) {})
	if err != nil || !l.isZero(unnumbered) {
		t.Errorf("got %v", err)
	}
}

// What a disk has on it is no reason to keep or to find it, so nothing depends on udev, which may
// not have seen a file system that was made a moment ago: disks are listed from /sys, and those of
// the operating system from /proc.
func TestErasesWhatUdevDoesNotKnow(t *testing.T) {
	for _, method := range []string{protocol.EraseZero, protocol.EraseDiscard} {
		t.Run(method, func(t *testing.T) {
			l := newLab(t)
			data, system := l.loop("data"), l.loop("system")
			l.labelled(data)
			l.mounted(system)
			// There are no lsblk, blkid and udevadm, and below the lab's root no database of udev.
			t.Setenv("PATH", t.TempDir())
			got := l.erase(l.eraser(), method)
			if got[data].Result != protocol.Erased || !l.isZero(data) {
				t.Errorf("the disk with a new file system: %+v", got[data])
			}
			if got[system].Result != protocol.ErasureKept || l.isZero(system) {
				t.Errorf("the disk of the operating system: %+v", got[system])
			}
		})
	}
}
