package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
)

// TestMain is also the program that runs scripts, see package script.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "run-script" {
		os.Exit(script.Main(os.Args[2]))
	}
	// testdata/bin has a fake systemctl for the script that starts units.
	bin, err := filepath.Abs(filepath.Join("testdata", "bin"))
	if err := errors.Join(err, os.Setenv("PATH", bin+":"+os.Getenv("PATH"))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// A program with the race detector sleeps for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// rootMount is the kernel's table of mounts if only the root is mounted.
const rootMount = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"

// machine is a host in a temporary directory.
type machine struct {
	t            *testing.T
	root, op     string
	owners       map[uint64]string
	journal      []byte
	saves        int
	commands     [][]string
	answers      map[string]string
	stdin        map[string]string
	dieBefore    int
	dieAfter     int
	dieOnCommand int
	observed     []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir(), op: t.TempDir(), owners: map[uint64]string{}, answers: map[string]string{}, stdin: map[string]string{}}
	m.file("/etc/passwd", "root:x:0:0::/root:/bin/sh\nold:x:1000:1000::/home/old:/bin/sh\n")
	m.file("/etc/group", "root:x:0:\nold:x:1000:\nadm:x:4:\n")
	m.file("/etc/shadow", "root:*:1\nold:$6$a$b:1\n")
	m.file("/etc/fstab", "/dev/sda1\t/\text4\tdefaults\t0\t1\n")
	m.file("/etc/motd", "welcome\n")
	m.file("/proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n")
	m.file("/proc/self/mountinfo", rootMount)
	m.file("/proc/sys/kernel/hostname", "before\n")
	m.file("/home/old/.profile", "")
	m.file("/etc/hostname", "before\n")
	for _, name := range []string{"useradd", "systemd-timesyncd", "mkfs.ext4", "sfdisk", "wipefs", "systemctl"} {
		m.program(name)
	}
	return m
}

func (m *machine) file(path, content string) {
	m.t.Helper()
	realPath := filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(realPath), 0o755), os.WriteFile(realPath, []byte(content), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) program(name string) {
	m.t.Helper()
	m.file("/usr/sbin/"+name, "")
	if err := os.Chmod(filepath.Join(m.root, "usr", "sbin", name), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// realPath returns the path below the temporary directory of a path of the host.
func (m *machine) realPath(path string) string { return filepath.Join(m.root, path) }

func (m *machine) read(path string) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

func (m *machine) options() apply.Options {
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	return apply.Options{
		Dir: m.op, Root: m.root, System: m, Journal: m, Chown: m.chown,
		ScriptCommand: []string{self, "run-script"}, InstanceID: "i-1",
		Observe: func(step string) { m.observed = append(m.observed, step) },
	}
}

// apply calls Apply as one process of the agent. alive is false if the process was
// killed.
func (m *machine) apply(ctx context.Context, c *bootstrapdata.Config) (warnings []string, alive bool, err error) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		warnings, err = apply.Apply(ctx, c, m.options())
		alive = true
	}()
	<-over
	return warnings, alive, err
}

func (m *machine) manifest() journal.Manifest {
	m.t.Helper()
	p, err := m.Load()
	if err != nil {
		m.t.Fatal(err)
	}
	return p.Manifest
}

func (m *machine) Load() (journal.Progress, error) {
	var p journal.Progress
	if m.journal == nil {
		return p, nil
	}
	err := json.Unmarshal(m.journal, &p)
	return p, err
}

func (m *machine) Save(p journal.Progress) error {
	m.saves++
	if m.saves == m.dieBefore {
		runtime.Goexit()
	}
	text, err := json.Marshal(p)
	m.journal = text
	if m.saves == m.dieAfter {
		runtime.Goexit()
	}
	return err
}

func inode(path string) (uint64, string) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, ""
	}
	return stat.Ino, fmt.Sprintf("%d:%d", stat.Uid, stat.Gid)
}

func (m *machine) chown(path string, uid, gid int) error {
	ino, _ := inode(path)
	m.owners[ino] = fmt.Sprintf("%d:%d", uid, gid)
	return nil
}

func (m *machine) owner(path string) string {
	ino, actual := inode(filepath.Join(m.root, path))
	if to, ok := m.owners[ino]; ok {
		return to
	}
	return actual
}

// tree returns every file with its mode and content. The owner is left out, because the
// fake useradd does not set it.
func (m *machine) tree() map[string]string {
	m.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + strings.ReplaceAll(string(text), m.root, "ROOT")
		}
		out[strings.TrimPrefix(path, m.root)] = line
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// Run imitates the programs of shadow-utils, util-linux and systemd.
func (m *machine) Run(_ context.Context, c host.Command) (string, error) {
	m.commands = append(m.commands, c.Args)
	out, err := m.imitate(c)
	if len(m.commands) == m.dieOnCommand {
		runtime.Goexit()
	}
	return out, err
}

func (m *machine) imitate(c host.Command) (string, error) {
	line := strings.Join(c.Args, " ")
	m.stdin[line] = c.Stdin
	if answer, ok := m.answers[line]; ok {
		if answer == "FAIL" {
			return "", errors.New("exit status 1")
		}
		return answer, nil
	}
	last := c.Args[len(c.Args)-1]
	switch c.Args[0] {
	case "useradd":
		return "", m.useradd(c.Args[1:])
	case "userdel":
		return "", m.userdel(last, slices.Contains(c.Args, "--remove"))
	case "groupadd":
		return "", m.add("/etc/group", last, last+":x:2000:")
	case "groupdel":
		return "", m.drop("/etc/group", last)
	case "usermod":
		shadow := m.read("/etc/shadow")
		switch c.Args[1] {
		case "--lock":
			if !strings.Contains(shadow, "\n"+last+":!") {
				m.file("/etc/shadow", strings.Replace(shadow, "\n"+last+":", "\n"+last+":!", 1))
			}
		case "--unlock":
			m.file("/etc/shadow", strings.Replace(shadow, "\n"+last+":!", "\n"+last+":", 1))
		}
		return "", nil
	case "chpasswd":
		name, password, _ := strings.Cut(strings.TrimSpace(c.Stdin), ":")
		if err := m.drop("/etc/shadow", name); err != nil {
			return "", err
		}
		return "", m.add("/etc/shadow", name, name+":"+password+":1")
	case "passwd", "chage":
		return "", m.changePassword(c.Args[1:len(c.Args)-1], last)
	case "mount":
		return "", m.add("/proc/self/mounts", "nothing", "x "+last+" ext4 rw 0 0")
	case "umount":
		text := m.read("/proc/self/mounts")
		m.file("/proc/self/mounts", strings.Replace(text, "x "+last+" ext4 rw 0 0\n", "", 1))
		return "", nil
	case "hostname":
		m.file("/proc/sys/kernel/hostname", last+"\n")
		return "", nil
	case "systemctl":
		return "", nil
	case "systemd-tmpfiles", "udevadm":
		return "", nil
	}
	return "", fmt.Errorf("no such program: %s", line)
}

// changePassword imitates passwd and chage.
func (m *machine) changePassword(options []string, name string) error {
	_, entry, _ := strings.Cut("\n"+m.read("/etc/shadow"), "\n"+name+":")
	entry, _, _ = strings.Cut(entry, "\n")
	fields := strings.Split(name+":"+entry, ":")
	switch options[0] {
	case "--expire":
		fields[2] = "0"
	case "--delete":
		fields[1] = ""
	case "--lastday":
		fields[2] = options[1]
	}
	if err := m.drop("/etc/shadow", name); err != nil {
		return err
	}
	return m.add("/etc/shadow", name, strings.Join(fields, ":"))
}

func (m *machine) useradd(args []string) error {
	name := args[0]
	home := "/home/" + name
	if i := slices.Index(args, "--home"); i > 0 {
		home = args[i+1]
	}
	err := errors.Join(
		m.add("/etc/passwd", name, name+":x:1500:1500::"+home+":/bin/sh"),
		m.add("/etc/group", name, name+":x:1500:"),
		m.add("/etc/shadow", name, name+":!:1"),
	)
	if slices.Contains(args, "-m") && err == nil {
		err = os.Mkdir(m.realPath(home), 0o755)
	}
	return err
}

func (m *machine) userdel(name string, home bool) error {
	if _, entry, found := strings.Cut("\n"+m.read("/etc/passwd"), "\n"+name+":"); found && home {
		if err := os.RemoveAll(m.realPath(strings.Split(entry, ":")[4])); err != nil {
			return err
		}
	}
	return errors.Join(m.drop("/etc/group", name), m.drop("/etc/shadow", name), m.drop("/etc/passwd", name))
}

func (m *machine) add(path, name, line string) error {
	text := m.read(path)
	if strings.Contains("\n"+text, "\n"+name+":") {
		return fmt.Errorf("%s exists in %s", name, path)
	}
	m.file(path, text+line+"\n")
	return nil
}

func (m *machine) drop(path, name string) error {
	lines := strings.SplitAfter(m.read(path), "\n")
	kept := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, name+":") })
	m.file(path, strings.Join(kept, ""))
	if len(kept) == len(lines) {
		return fmt.Errorf("%s is not in %s", name, path)
	}
	return nil
}
