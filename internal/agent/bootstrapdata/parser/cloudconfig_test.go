package parser_test

import (
	"encoding/base64"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
)

func TestParseFile(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct {
		yaml    string
		content string
		mode    fs.FileMode
		owner   string
		warns   int
	}{
		"defaults":                {"content: a", "a", 0o644, "root:root", 0},
		"no content":              {"append: false", "", 0o644, "root:root", 0},
		"block adds a newline":    {"content: |\n    a\n", "a\n", 0o644, "root:root", 0},
		"block keeps one newline": {"content: |\n    a\n\n\n", "a\n", 0o644, "root:root", 0},
		"CRLF becomes LF":         {"content: |\r\n    a\r\n    b\r\n", "a\nb\n", 0o644, "root:root", 0},
		"escapes":                 {`content: "a\tb\x41"`, "a\tbA", 0o644, "root:root", 0},
		"base64":                  {"encoding: b64\n  content: " + b64([]byte("x\n")), "x\n", 0o644, "root:root", 0},
		"base64 in a block":       {"encoding: \"base64\"\n  content: |\n    eHh4\n    eHg=\n", "xxxxx", 0o644, "root:root", 0},
		"gzip and base64":         {"encoding: gzip+base64\n  content: " + b64(zipped("zz")), "zz", 0o644, "root:root", 0},
		"gz+b64, upper case":      {"encoding: ' GZ+B64 '\n  content: " + b64(zipped("zz")), "zz", 0o644, "root:root", 0},
		"gzip of binary":          {"encoding: gz\n  content: !!binary " + b64(zipped("zz")), "zz", 0o644, "root:root", 0},
		"binary":                  {"content: !!binary /w==", "\xff", 0o644, "root:root", 0},
		"quoted mode":             {"permissions: '0600'", "", 0o600, "root:root", 0},
		"unquoted octal mode":     {"permissions: 0640", "", 0o640, "root:root", 0},
		"decimal mode":            {"permissions: 420", "", 0o644, "root:root", 1},
		"mode zero":               {"permissions: '0000'", "", 0o644, "root:root", 1},
		"undecodable mode":        {"permissions: u=rw", "", 0o644, "root:root", 1},
		"set-user-ID is lost":     {"permissions: '4755'", "", 0o755, "root:root", 1},
		"set-group-ID is lost":    {"permissions: '2755'", "", 0o755, "root:root", 1},
		"sticky":                  {"permissions: '1777'", "", 0o777 | fs.ModeSticky, "root:root", 0},
		"owner alone":             {"owner: kube", "", 0o644, "kube:", 0},
		"owner and group":         {"owner: 'kube : adm'", "", 0o644, "kube:adm", 0},
		"owner none":              {"owner: none:-1", "", 0o644, ":", 0},
		"unknown key":             {"contents: x", "", 0o644, "root:root", 1},
		"last duplicate key wins": {"content: a\n  content: b", "b", 0o644, "root:root", 0},
		"quoted boolean":          {"content: 'yes'", "yes", 0o644, "root:root", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, warnings := parse(t, header+"write_files:\n- path: /a/../b//c\n  "+c.yaml)
			f := config.Files[0]
			if f.Path != "/b/c" || string(f.Content) != c.content || f.Mode != c.mode || f.User+":"+f.Group != c.owner {
				t.Errorf("got %+v", f)
			}
			if len(warnings) != c.warns {
				t.Errorf("got warnings %v, want %d", warnings, c.warns)
			}
		})
	}
}

// The words of a list are not expanded by a shell. Values that are no strings are
// written as in Python.
func TestScript(t *testing.T) {
	t.Parallel()
	config, _ := parse(t, header+`
runcmd:
- cd /tmp
- [echo, "it's", $HOME, yes, 0640, 12:30, 1.0, ~, 2024-01-01, "", -x, 1_000, 123456.0e+2, 1.0e+16]
-
- "printf 'a\nb' > x"
- []
- 'unbalanced "'
`)
	want := `#!/bin/sh
cd /tmp
'echo' 'it'\''s' '$HOME' 'True' '416' '750' '1.0' 'None' '2024-01-01' '' '-x' '1000' '12345600.0' '1e+16'
printf 'a
b' > x

unbalanced "
`
	if got := bootstrapdata.Script(config.Commands); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want bool
	}{
		"in a command":        {"runcmd:\n- kubeadm init && echo success > /run/cluster-api/bootstrap-success.complete\n", true},
		"in a list":           {"runcmd:\n- [touch, /run/cluster-api/bootstrap-success.complete]\n", true},
		"in a file that runs": {"write_files:\n- path: /opt/up\n  content: touch /run/cluster-api/bootstrap-success.complete\nruncmd:\n- sh /opt/up\n", true},
		"in an unused file":   {"write_files:\n- path: /opt/up\n  content: touch /run/cluster-api/bootstrap-success.complete\nruncmd:\n- echo\n", false},
		"nowhere":             {"runcmd:\n- systemctl start k3s\n", false},
	} {
		config, _ := parse(t, header+c.in)
		if got := config.Sentinel != ""; got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestParseUsers(t *testing.T) {
	t.Parallel()
	config, warnings := parse(t, header+`
groups: [adm2, {ops: [a, b]}]
users:
- default
- name: kube
  gecos: Kube User
  groups: [wheel, " docker"]
  lock-passwd: false
  passwd: $6$x$y
  sudo: ALL=(ALL) NOPASSWD:ALL
  inactive: true
  ssh_authorized_keys: [ssh-rsa k1, no key, 'from="a b",no-pty ssh-ed25519 k2 me', ssh-rsa k1]
  uid: 1005
  nonsense: 1
- name: plain
  gecos: 5
  sudo: false
  groups: a, b
- kube
`)
	want := []bootstrapdata.User{
		{Name: "kube", Gecos: "Kube User", Groups: []string{"wheel", "docker"}, Password: "$6$x$y", Sudo: []string{"ALL=(ALL) NOPASSWD:ALL"}, SSHKeys: []string{"ssh-rsa k1", `from="a b",no-pty ssh-ed25519 k2 me`}, UID: "1005"},
		{Name: "plain", Lock: true, Groups: []string{"a", "b"}},
	}
	if !reflect.DeepEqual(config.Users, want) {
		t.Errorf("got  %+v\nwant %+v", config.Users, want)
	}
	if groups := []bootstrapdata.Group{{Name: "adm2"}, {Name: "ops", Members: []string{"a", "b"}}}; !reflect.DeepEqual(config.Groups, groups) {
		t.Errorf("got groups %+v", config.Groups)
	}
	var text []string
	for _, w := range warnings {
		text = append(text, w.String())
	}
	if all := strings.Join(text, "\n"); len(text) != 5 || !strings.Contains(all, "line 12: user kube: inactive is a boolean, which has no effect") || !strings.Contains(all, "number 2 is not an SSH public key") {
		t.Errorf("got warnings\n%s", all)
	}
}

func TestParseStorage(t *testing.T) {
	t.Parallel()
	config, _ := parse(t, header+`
device_aliases: {data: /dev/sdc}
disk_setup:
  /dev/sdb:
    table_type: gpt
    layout: [33, [66, 82]]
    overwrite: yes
  data: {layout: on}
  /dev/sdd: {layout: false}
fs_setup:
- label: etcd
  filesystem: ext4
  device: /dev/sdb
  partition: 1
  extra_opts:
  - -E
  - lazy_itable_init=1
- {device: data.2, filesystem: xfs, label: ~}
mounts:
- [LABEL=etcd, /var/lib/etcd]
- [tmpfs, /tmp/x, tmpfs, size=1g, 0 , 0]
- [sdb1, /gone]
- [sdb1]
`)
	disks := []bootstrapdata.Disk{
		{Device: "/dev/sdb", TableType: "gpt", Overwrite: true, Partitions: []bootstrapdata.Partition{{Percent: 33}, {Percent: 66, Type: "82"}}},
		{Device: "/dev/sdc", TableType: "mbr", Whole: true},
	}
	if !reflect.DeepEqual(config.Disks, disks) {
		t.Errorf("got disks %+v", config.Disks)
	}
	filesystems := []bootstrapdata.Filesystem{
		{Label: "etcd", Type: "ext4", Device: "/dev/sdb", Partition: "1", Options: []string{"-E", "lazy_itable_init=1"}},
		{Type: "xfs", Device: "/dev/sdc", Partition: "2"},
	}
	if !reflect.DeepEqual(config.Filesystems, filesystems) {
		t.Errorf("got file systems %+v", config.Filesystems)
	}
	mounts := []bootstrapdata.Mount{
		{Device: "LABEL=etcd", Point: "/var/lib/etcd", Type: "auto", Options: "defaults,nofail,_netdev", Dump: "0", Pass: "2"},
		{Device: "tmpfs", Point: "/tmp/x", Type: "tmpfs", Options: "size=1g", Dump: "0", Pass: "0"},
	}
	if !reflect.DeepEqual(config.Mounts, mounts) {
		t.Errorf("got mounts %+v", config.Mounts)
	}
}

func TestParseHostName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"hostname: a":            "a",
		"hostname: a.b.c":        "a",
		"fqdn: a.b":              "a",
		"hostname: x\nfqdn: a.b": "x",
		"fqdn: a.b\nprefer_fqdn_over_hostname: 1": "a.b",
		"hostname: a\npreserve_hostname: true":    "",
		"runcmd: []":                              "",
	} {
		config, _ := parse(t, header+in+"\n")
		got := ""
		if config.HostName != nil {
			got = config.HostName.Name
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestParseNTP(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]*bootstrapdata.NTP{
		"ntp: {enabled: true, servers: [a, b]}":    {Client: "auto", Servers: []string{"a", "b"}},
		"ntp: {enabled: off}":                      nil,
		"ntp:\n  pools: [p]\n  ntp_client: chrony": {Client: "chrony", Pools: []string{"p"}},
		"ntp:": {Client: "auto", Pools: []string{"0.pool.ntp.org", "1.pool.ntp.org", "2.pool.ntp.org", "3.pool.ntp.org"}},
	} {
		config, _ := parse(t, header+in+"\n")
		if !reflect.DeepEqual(config.NTP, want) {
			t.Errorf("%q: got %+v", in, config.NTP)
		}
	}
}
