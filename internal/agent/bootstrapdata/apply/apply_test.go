package apply_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
)

const header = "#cloud-config\n"

// fails applies a document twice, expects the same failure each time, and returns it.
func (m *machine) fails(text string) *apply.Failure {
	m.t.Helper()
	c := document(m.t, m, text)
	var first *apply.Failure
	if _, _, err := m.apply(m.t.Context(), c); !errors.As(err, &first) {
		m.t.Fatalf("applying the document: got %v, want a failure", err)
	}
	var second *apply.Failure
	if _, _, err := m.apply(m.t.Context(), c); !errors.As(err, &second) || !reflect.DeepEqual(first, second) {
		m.t.Fatalf("applying the document again: got %v, want %v", err, first)
	}
	return first
}

func (m *machine) succeeds(text string) []string {
	m.t.Helper()
	warnings, _, err := m.apply(m.t.Context(), document(m.t, m, text))
	if err != nil {
		m.t.Fatal(err)
	}
	return warnings
}

// The check finds errors of later steps before anything on the host changes.
func TestCheckChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"unknown owner":          {"write_files:\n- {path: /a, content: x}\n- {path: /b, owner: 'nobody:root'}\n", `write_files[1] /b: there is no user "nobody"`},
		"unknown group":          {"write_files:\n- {path: /b, owner: 'root:nogroup'}\n", `no group "nogroup"`},
		"owner is made later":    {"users: [kube]\nwrite_files:\n- {path: /b, owner: kube}\n", "defer: true"},
		"path is a directory":    {"write_files:\n- {path: /etc, content: x}\n", "it is a directory"},
		"only a primary group":   {"users:\n- {name: kube, primary_group: kubes}\n", `no group "kubes"`},
		"create_groups is false": {"users:\n- {name: kube, groups: kubes, create_groups: false}\n", `no group "kubes"`},
		"unknown file system":    {"fs_setup:\n- {device: /dev/sdb, filesystem: zfs}\n", "mkfs.zfs or mkzfs"},
		"missing NTP client":     {"ntp: {ntp_client: chrony}\n", "needs chrony"},
		"loop of symbolic links": {"write_files:\n- {path: /loop/a}\n", "too many symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if err := os.Symlink("/loop", m.realPath("loop")); err != nil {
				t.Fatal(err)
			}
			before := m.tree()
			f := m.fails(header + c.in)
			if f.Step != "check" || !strings.Contains(f.Reason, c.want) {
				t.Errorf("got the failure %v of step %q, want %q of the check", f, f.Step, c.want)
			}
			compare(t, m.tree(), before)
		})
	}
}

// The check runs after bootcmd, which may make the owner of a file.
func TestBootcmdMayMakeAnOwner(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	warnings := m.succeeds(header + "bootcmd:\n- echo kube:x:7:7::/:/bin/sh >> ROOT/etc/passwd\n- exit 3\nwrite_files:\n- {path: /a, owner: kube, content: x}\n")
	if got := m.owner("/a"); got != "7:0" && os.Getuid() == 0 {
		t.Errorf("got the owner %s, want 7:0", got)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "bootcmd ended with status 3") {
		t.Errorf("got warnings %q", warnings)
	}
}

func TestSuccessOfRuncmd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, failure string }{
		"status 0":                {"runcmd:\n- 'false'\n- 'true'\n", ""},
		"status of the last":      {"runcmd:\n- 'true'\n- exit 4\n", "status 4"},
		"sentinel, bad status":    {"runcmd:\n- mkdir -p ROOT/run/cluster-api\n- echo > ROOT/run/cluster-api/bootstrap-success.complete\n- exit 4\n", ""},
		"no sentinel, status 0":   {"runcmd:\n- false && echo > ROOT/run/cluster-api/bootstrap-success.complete\n- 'true'\n", "status 0 and did not write /run/cluster-api"},
		"syntax error":            {"runcmd:\n- echo '\n- 'true'\n", "status 2"},
		"one shell for all":       {"runcmd:\n- cd /proc\n- X=1; set -e\n- '[ \"$PWD$X\" = /proc1 ]'\n- 'false'\n- 'true'\n", "status 1"},
		"nothing to run":          {"write_files: [{path: /a}]\n", ""},
		"HOME is set, umask 0022": {"runcmd:\n- '[ -n \"$HOME\" ] && [ \"$(umask)\" = 0022 ]'\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.file("/run/cluster-api/bootstrap-success.complete", "stale")
			if c.failure == "" {
				m.succeeds(header + c.in)
				return
			}
			if f := m.fails(header + c.in); f.Step != "runcmd" || !strings.Contains(f.Reason, c.failure) {
				t.Errorf("got the failure %v of step %q, want %q of runcmd", f, f.Step, c.failure)
			}
		})
	}
}

func TestFailureHasRedactedEndOfOutput(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.fails(header + "runcmd:\n- i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done\n- echo kubeadm join --token abcdef.0123456789abcdef\n- exit 1\n")
	if len(f.Output) > 1024 || !strings.HasSuffix(f.Output, "line 499\nkubeadm join --token [redacted]") {
		t.Errorf("got an output of %d bytes: %q", len(f.Output), f.Output)
	}
	if strings.Contains(string(m.journal), "abcdef.") {
		t.Error("the journal contains the token")
	}
}

func TestInterruptedScript(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.fails(header + "runcmd:\n- echo run >> ROOT/count\n- kill -9 -$(cut -d' ' -f5 /proc/self/stat) # all of the session\n")
	if !errors.Is(f, apply.ErrInterrupted) || f.Step != "runcmd" {
		t.Errorf("got the failure %v of step %q, want an interrupted runcmd", f, f.Step)
	}
	if got := m.read("/count"); got != "run\n" {
		t.Errorf("the script counted its runs as %q, want one run", got)
	}
}

// If the agent stops or the disk is full, the document has not failed, and the next
// Apply continues.
func TestContinuesAfterStopAndFullDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := document(t, m, header+"write_files: [{path: /a, content: x}]\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var failure *apply.Failure
	if _, _, err := m.apply(ctx, c); !errors.Is(err, context.Canceled) || errors.As(err, &failure) {
		t.Errorf("got %v, want %v and no failure", err, context.Canceled)
	}
	opts := m.options()
	opts.Journal = fullDisk{}
	if _, err := apply.Apply(t.Context(), c, opts); !errors.Is(err, syscall.ENOSPC) || errors.As(err, &failure) {
		t.Errorf("got %v, want %v and no failure", err, syscall.ENOSPC)
	}
	m.succeeds(header + "write_files: [{path: /a, content: x}]\n")
}

// An operation executes one document. Before its end another document is an error;
// after its end Apply returns the recorded outcome.
func TestAnotherDocument(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first := header + "write_files: [{path: /a, content: x}]\n"
	other := document(t, m, header+"write_files: [{path: /b}]\n")
	m.dieAfter = 2
	if _, alive, err := m.apply(t.Context(), document(t, m, first)); alive {
		t.Fatalf("Apply was not killed: %v", err)
	}
	m.dieAfter = 0
	var failure *apply.Failure
	if _, _, err := m.apply(t.Context(), other); !errors.As(err, &failure) || !strings.Contains(failure.Reason, "one document only") {
		t.Errorf("applying another document during the operation: got %v", err)
	}
	m.succeeds(first)
	if _, _, err := m.apply(t.Context(), other); err != nil {
		t.Errorf("applying another document after the operation: %v", err)
	}
	if _, err := os.Stat(m.realPath("b")); err == nil {
		t.Error("the other document was executed")
	}
}

type fullDisk struct{}

func (fullDisk) Load() (journal.Progress, error) { return journal.Progress{}, nil }
func (fullDisk) Save(journal.Progress) error     { return syscall.ENOSPC }

func TestWritingFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.file("/data/target", "old\n")
	m.file("/proc/sys/vm/x", "0")
	ino, _ := inode(m.realPath("proc/sys/vm/x"))
	if err := errors.Join(
		os.Symlink("/data", m.realPath("link")),
		os.Symlink("../data/target", m.realPath("etc/to-target")),
		os.Chown(m.realPath("data/target"), os.Getuid(), os.Getgid()),
	); err != nil {
		t.Fatal(err)
	}
	before := m.tree()
	m.succeeds(header + `
write_files:
- {path: /link/new, content: a, permissions: '0751'}
- {path: /etc/to-target, content: b, owner: old}
- {path: /etc/to-target, content: c, append: true}
- {path: /proc/sys/vm/x, content: '1'}
- {path: /a/../../../escape/d/e, content: x}
`)
	info, err := os.Lstat(m.realPath("etc/to-target"))
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	for path, want := range map[string]string{"/data/new": "a", "/data/target": "bc", "/proc/sys/vm/x": "1", "/escape/d/e": "x"} {
		if got := m.read(path); got != want {
			t.Errorf("%s contains %q, want %q", path, got, want)
		}
	}
	if again, _ := inode(m.realPath("proc/sys/vm/x")); again != ino {
		t.Error("the file of a kernel setting was replaced by a new file")
	}
	if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
		t.Fatal(err)
	}
	m.file("/proc/sys/vm/x", "0") // Undo cannot restore a kernel setting
	compare(t, m.tree(), before)
}

func TestUndo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.tree()
	m.succeeds(header + "write_files: [{path: /opt/app/conf, content: x}, {path: /etc/motd, content: y}]\nusers: [kube]\n")
	// Undo also removes later files in the directories that the bootstrap made.
	m.file("/opt/app/data/file", "z")
	m.file("/etc/motd", "changed later")
	if err := os.Remove(m.realPath("opt/app/conf")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
			t.Fatal(err)
		}
		compare(t, m.tree(), before)
	}
}

func TestUndoContinuesAfterError(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.succeeds(header + "write_files: [{path: /a, content: x}, {path: /etc/motd, content: y}]\n")
	if err := os.RemoveAll(filepath.Join(m.op, "backup")); err != nil {
		t.Fatal(err)
	}
	if err := apply.Undo(t.Context(), m.manifest(), m.options()); err == nil || !strings.Contains(err.Error(), "/etc/motd") {
		t.Errorf("got %v, want an error about /etc/motd", err)
	}
	if _, err := os.Stat(m.realPath("a")); err == nil {
		t.Error("Undo did not remove the other file")
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.file("/home/old/.ssh/authorized_keys", "ssh-rsa have\nold-key")
	m.succeeds(header + `
groups: [{ops: [old, nobody]}]
users:
- name: svc
  system: true
  gecos: A Service
  groups: [adm, extra]
  primary_group: main
  shell: /bin/false
  uid: 900
- name: old
  shell: /bin/zsh
  lock_passwd: false
  plain_text_passwd: 'a:b'
  ssh_authorized_keys: [ssh-rsa have, ssh-rsa new]
`)
	want := [][]string{
		{"groupadd", "ops"}, {"usermod", "-a", "-G", "ops", "old"},
		{"groupadd", "extra"}, {"groupadd", "main"},
		{"useradd", "svc", "--comment", "A Service", "--groups", "adm,extra", "--gid", "main", "--shell", "/bin/false", "--uid", "900", "--system", "-M"},
		{"usermod", "--lock", "svc"}, {"chpasswd"},
	}
	if !reflect.DeepEqual(m.commands, want) {
		t.Errorf("got the commands %q, want %q", m.commands, want)
	}
	if got := m.read("/home/old/.ssh/authorized_keys"); got != "ssh-rsa have\nold-key\nssh-rsa new\n" {
		t.Errorf("got the keys %q", got)
	}
	if got := m.read("/etc/shadow"); !strings.Contains(got, "old:a:b:1\n") {
		t.Errorf("got the passwords %q", got)
	}
}

// A user must not be able to redirect a write of root by a symbolic link.
func TestKeysDoNotFollowLinks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if err := os.Symlink("/etc", m.realPath("home/old/.ssh")); err != nil {
		t.Fatal(err)
	}
	if f := m.fails(header + "users:\n- {name: old, ssh_authorized_keys: [ssh-rsa k]}\n"); !strings.Contains(f.Reason, "symbolic link") {
		t.Errorf("got %v, want a failure about the symbolic link", f)
	}
}

func TestLocalSystem(t *testing.T) {
	t.Parallel()
	out, err := host.LocalSystem{}.Run(t.Context(), host.Command{Args: []string{"cat"}, Stdin: "in"})
	if out != "in" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := (host.LocalSystem{}).Run(t.Context(), host.Command{Args: []string{"sh", "-c", "echo why >&2; exit 3"}}); err == nil || !strings.Contains(err.Error(), "exit status 3: why") {
		t.Errorf("got %v", err)
	}
}
