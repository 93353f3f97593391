package apply_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

// everything is a document that uses each kind of step.
const everything = `#cloud-config
bootcmd:
- echo "$INSTANCE_ID $HOME" >> ROOT/boot
write_files:
- path: /etc/kubernetes/pki/ca.key
  permissions: '0600'
  content: secret
- path: /etc/motd
  append: true
  owner: root:adm
  permissions: '0664'
  content: |
    appended
- path: /opt/deferred
  defer: true
  owner: kube:kube
  content: x
- path: /run/cluster-api/placeholder
  content: x
mounts:
- [/dev/sdb, /var/lib/etcd]
hostname: after
groups: [ops]
users:
- name: kube
  groups: wheel
  passwd: $6$x$y
  sudo: ALL=(ALL) NOPASSWD:ALL
  ssh_authorized_keys: [ssh-rsa key-1]
- name: old
  ssh_authorized_keys: [ssh-rsa key-2]
ntp:
  servers: [time.example]
runcmd:
- echo run >> ROOT/count
- echo success > ROOT/run/cluster-api/bootstrap-success.complete
- "false"
`

func document(t *testing.T, m *machine, text string) *bootstrapdata.Config {
	t.Helper()
	c, _, err := parser.Parse([]byte(strings.ReplaceAll(text, "ROOT", m.root)), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// madeByScripts returns the files that scripts make. Undo does not remove them.
func madeByScripts() []string { return []string{"/boot", "/count"} }

// If the agent is killed at any point, the next Apply completes the operation: the host
// is the same as without the kill, and each script ran once. Undo reverts everything.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	killedAnywhere(t, func(m *machine) *bootstrapdata.Config { return document(m.t, m, everything) })
}

func killedAnywhere(t *testing.T, config func(*machine) *bootstrapdata.Config) {
	t.Helper()
	whole := newMachine(t)
	c := config(whole)
	before := whole.tree()
	_, _, err := whole.apply(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := whole.tree()
	kills := map[string]func(*machine){}
	for n := 1; n <= whole.saves; n++ {
		kills[fmt.Sprintf("before save %d", n)] = func(m *machine) { m.dieBefore = n }
		kills[fmt.Sprintf("after save %d", n)] = func(m *machine) { m.dieAfter = n }
	}
	for n := 1; n <= len(whole.commands); n++ {
		kills[fmt.Sprintf("after command %d %s", n, whole.commands[n-1][0])] = func(m *machine) { m.dieOnCommand = n }
	}
	for name, kill := range kills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			kill(m)
			c := config(m)
			if _, alive, err := m.apply(t.Context(), c); alive {
				t.Fatalf("Apply was not killed: %v", err)
			}
			m.dieBefore, m.dieAfter, m.dieOnCommand = 0, 0, 0
			if _, _, err := m.apply(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			compare(t, m.tree(), want)
			if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
				t.Fatal(err)
			}
			after := m.tree()
			for _, path := range madeByScripts() {
				delete(after, path)
			}
			compare(t, after, before)
		})
	}
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for path, line := range want {
		if got[path] != line {
			t.Errorf("%s: got %q, want %q", path, got[path], line)
		}
	}
	for path, line := range got {
		if _, ok := want[path]; !ok {
			t.Errorf("%s exists and should not: %q", path, line)
		}
	}
}

func TestEverything(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := document(t, m, everything)
	warnings, _, err := m.apply(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	home := os.Getenv("HOME")
	if home == "" {
		home = "/root"
	}
	for path, want := range map[string]string{
		"/boot":                              "i-1 " + home + "\n",
		"/count":                             "run\n",
		"/etc/kubernetes/pki/ca.key":         "secret",
		"/etc/motd":                          "welcome\nappended\n",
		"/etc/hostname":                      "after\n",
		"/proc/sys/kernel/hostname":          "after\n",
		"/etc/fstab":                         "/dev/sda1\t/\text4\tdefaults\t0\t1\n/dev/sdb\t/var/lib/etcd\tauto\tdefaults,nofail,_netdev,comment=cloudconfig\t0\t2\n",
		"/home/kube/.ssh/authorized_keys":    "ssh-rsa key-1\n",
		"/etc/sudoers.d/90-cloud-init-users": "# Created by elemental-agent for the users of the bootstrap data\n\n# User rules for kube\nkube ALL=(ALL) NOPASSWD:ALL\n",
		"/etc/shadow":                        "root:*:1\nold:!$6$a$b:1\nkube:!$6$x$y:1\n",
		"/etc/systemd/timesyncd.conf.d/cloud-init.conf": "# Written by elemental-agent, see timesyncd.conf(5).\n\n[Time]\nNTP=time.example\n",
	} {
		if got := m.read(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{
		"/etc/motd": "0:4", "/opt/deferred": "1500:1500", "/etc/kubernetes/pki": "0:0",
		"/home/kube/.ssh": "1500:1500", "/home/kube/.ssh/authorized_keys": "1500:1500",
	} {
		if got := m.owner(path); got != want {
			t.Errorf("the owner of %s is %s, want %s", path, got, want)
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "status 1") {
		t.Errorf("got the warnings %q", warnings)
	}
	steps := []string{
		"clear /run/cluster-api/bootstrap-success.complete", "bootcmd", "check", "write_files[0] /etc/kubernetes/pki/ca.key",
		"write_files[1] /etc/motd", "write_files[3] /run/cluster-api/placeholder", "fstab", "fstab reload", "mount /dev/sdb /var/lib/etcd",
		"hostname", "hostname after", "group ops", "user kube", "sudo kube", "ssh keys kube", "user old", "ssh keys old",
		"ntp", "ntp reload", "write_files[2] /opt/deferred", "runcmd",
	}
	if !reflect.DeepEqual(m.observed, steps) {
		t.Errorf("got the steps %q, want %q", m.observed, steps)
	}
	// After the end of the operation Apply does nothing.
	saves, commands := m.saves, len(m.commands)
	if _, _, err := m.apply(t.Context(), c); err != nil || m.saves != saves || len(m.commands) != commands {
		t.Errorf("applying again: error %v, %d saves, want none", err, m.saves-saves)
	}
}

func TestSecretsStayPrivateAndAreShredded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if _, _, err := m.apply(t.Context(), document(t, m, everything)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(m.journal), "secret") || strings.Contains(string(m.journal), "$6$") {
		t.Errorf("the journal contains secrets: %s", m.journal)
	}
	err := filepath.Walk(m.op, func(path string, info os.FileInfo, err error) error {
		if err == nil && path != m.op && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(apply.ShredSecrets(m.op), apply.ShredSecrets(m.op)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"scripts/runcmd/script": false, "scripts/runcmd/spec.json": false, "scripts/runcmd/result.json": true, "backup/0000": true} {
		if _, err := os.Stat(filepath.Join(m.op, path)); (err == nil) != want {
			t.Errorf("%s exists: %v, want %v", path, err == nil, want)
		}
	}
}
