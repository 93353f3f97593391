package bootstrap_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

const header = "#cloud-config\n"

func parse(t *testing.T, text string) (*bootstrap.Config, []bootstrap.Warning) {
	t.Helper()
	config, warnings, err := bootstrap.Parse([]byte(text), "", hostVariables())
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	return config, warnings
}

func hostVariables() bootstrap.Variables {
	return bootstrap.NewVariables(
		map[string]any{"instance-id": "i-1", "local-hostname": "edge-7"},
		map[string]any{"local_hostname": "edge-7", "instance_id": "i-1"},
	)
}

func zipped(text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write([]byte(text)) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// What cloud-init loses with a line in its log, or with none at all.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	gz := zipped(header + "runcmd: [a]\n")
	for name, c := range map[string]struct {
		in     string
		format string
		line   int
		reason string
	}{
		"unknown format":        {header, "nope", 0, "unknown format"},
		"empty":                 {" \n", "", 0, "empty"},
		"only comments":         {header + "# nothing\n", "", 0, "nothing"},
		"null":                  {header + "~\n", "", 0, "nothing"},
		"no header":             {"runcmd: [a]\n", "", 1, "header"},
		"byte-order mark":       {"\xef\xbb\xbf" + header + "runcmd: [a]\n", "", 1, "byte-order mark"},
		"truncated gzip":        {string(gz[:len(gz)-9]), "", 0, "truncated"},
		"not UTF-8":             {header + "a: b\nc: \xff\n", "", 3, "UTF-8"},
		"include":               {"#include\nhttps://x\n", "", 1, "include"},
		"archive":               {"#cloud-config-archive\n- a\n", "", 1, "archive"},
		"mime":                  {"Content-Type: multipart/mixed\n\n", "", 1, "MIME-Version"},
		"malformed yaml":        {header + "runcmd:\n- a\n b\n  - c: [\n", "", 5, "malformed YAML"},
		"control character":     {header + "a: b\nc: \"\x07\"\n", "", 3, "control character"},
		"delete character":      {header + "runcmd: [\"\x7f\"]\n", "", 2, "control character"},
		"several documents":     {header + "a: b\n---\nc: d\n", "", 0, "several YAML documents"},
		"list at the top":       {header + "- a\n", "", 2, "not a mapping"},
		"unknown alias":         {header + "a: *b\n", "", 0, "malformed YAML"},
		"unknown tag":           {header + "a: !x b\n", "", 2, "tag"},
		"indent of first line":  {header + "write_files:\n- path: /a\n  content: |\n      a\n    b\n", "", 6, "malformed YAML"},
		"lone CR":               {header + "write_files:\n- path: /a\n  content: |\n    a\rb\n", "", 0, "malformed YAML"},
		"NEL":                   {header + "write_files:\n- path: /a\n  content: |\n    a\u0085b\n", "", 0, "malformed YAML"},
		"jinja syntax":          {"## template: jinja\n" + header + "runcmd:\n- echo ${#a[@]}\n", "", 4, "jinja"},
		"jinja deep":            {"## template: jinja\n" + header + "a: {{ x.y.z }}\n", "", 3, "undefined"},
		"jinja other kind":      {"## template: mako\n" + header + "a: b\n", "", 0, ""},
		"jinja before yaml":     {"## template: jinja\n" + header + "{% if true %}\nruncmd: 1\n{% endif %}\n", "", 2, "not a list"},
		"files no list":         {header + "write_files: {}\n", "", 2, "write_files is a mapping, not a list"},
		"file no mapping":       {header + "write_files:\n- a\n", "", 3, "not a mapping"},
		"file no path":          {header + "write_files:\n- content: a\n", "", 3, "no path"},
		"file root path":        {header + "write_files:\n- path: /a/..\n", "", 3, "not the path of a file"},
		"content number":        {header + "write_files:\n- path: /a\n  content: 5\n", "", 4, "put it in quotes"},
		"content nothing":       {header + "write_files:\n- path: /a\n  content:\n", "", 4, "nothing"},
		"bad base64":            {header + "write_files:\n- path: /a\n  encoding: b64\n  content: 'abc'\n", "", 5, "bad base64"},
		"bad gzip":              {header + "write_files:\n- path: /a\n  encoding: gz+b64\n  content: YWJj\n", "", 5, "bad gzip"},
		"unknown encoding":      {header + "write_files:\n- path: /a\n  encoding: rot13\n  content: a\n", "", 4, "unknown encoding"},
		"numeric owner":         {header + "write_files:\n- path: /a\n  owner: '0:0'\n", "", 4, "by name only"},
		"unquoted owner":        {header + "write_files:\n- path: /a\n  owner: 1000:1000\n", "", 4, "owner"},
		"mode out of range":     {header + "write_files:\n- path: /a\n  permissions: '77777'\n", "", 4, "out of range"},
		"runcmd string":         {header + "runcmd: a\n", "", 2, "not a list"},
		"runcmd map":            {header + "runcmd:\n- a\n- echo a: b\n", "", 4, "neither a string nor a list"},
		"runcmd boolean":        {header + "runcmd:\n- yes\n", "", 3, "neither a string nor a list"},
		"runcmd number":         {header + "runcmd:\n- 12:30\n", "", 3, "neither a string nor a list"},
		"runcmd nested":         {header + "runcmd:\n- [a, [b]]\n", "", 3, "not a word"},
		"bootcmd map":           {header + "bootcmd:\n- {a: b}\n", "", 3, "bootcmd[0]"},
		"user number":           {header + "users:\n- 5\n", "", 3, "neither a name"},
		"user without name":     {header + "users:\n- shell: /bin/sh\n", "", 3, "no name"},
		"user name":             {header + "users:\n- name: -R\n", "", 0, "not a name"},
		"user colon":            {header + "users:\n- name: a\n  gecos: 'a:b'\n", "", 4, "colon"},
		"user passwd number":    {header + "users:\n- name: a\n  passwd: 12\n", "", 4, "not a string"},
		"system user with keys": {header + "users:\n- name: a\n  system: true\n  ssh_authorized_keys: [k]\n", "", 0, "no home directory"},
		"sudo number":           {header + "users:\n- name: a\n  sudo: 5\n", "", 4, "sudoers"},
		"mount relative":        {header + "mounts:\n- [/dev/sdb, data]\n", "", 3, "absolute"},
		"mount string":          {header + "mounts:\n- /dev/sdb\n", "", 3, "fields of fstab"},
		"disk name":             {header + "disk_setup:\n  ephemeral0: {layout: true}\n", "", 3, "path of a device"},
		"disk shares":           {header + "disk_setup:\n  /dev/sdb:\n    layout: [60, 60]\n", "", 4, "more than 100"},
		"disk five mbr":         {header + "disk_setup:\n  /dev/sdb:\n    layout: [1, 1, 1, 1, 1]\n", "", 3, "use gpt"},
		"table type":            {header + "disk_setup:\n  /dev/sdb:\n    table_type: bsd\n    layout: true\n", "", 4, "known are mbr"},
		"fs without type":       {header + "fs_setup:\n- device: /dev/sdb\n", "", 3, "neither filesystem nor cmd"},
		"fs partition":          {header + "fs_setup:\n- {device: /dev/sdb, filesystem: ext4, partition: some}\n", "", 3, "partition"},
		"host name":             {header + "hostname: 'a b'\n", "", 2, "host name"},
		"ntp server":            {header + "ntp:\n  servers: ['a b']\n", "", 3, "neither a host name"},
		"ntp client":            {header + "ntp:\n  ntp_client: sundial\n", "", 3, "unknown"},
		"alias bomb":            {header + "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f]\n", "", 0, "more than"},
		"plain equals sign":     {header + "runcmd:\n- [a, =]\n", "", 3, "in quotes"},
		"alias loop":            {header + "a: &a [*a]\n", "", 0, "itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := bootstrap.Parse([]byte(c.in), c.format, hostVariables())
			var at *bootstrap.ParseError
			if !errors.As(err, &at) {
				t.Fatalf("got %v, want a ParseError", err)
			}
			if c.line != 0 && at.Line != c.line || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("got %q, want line %d and %q", err, c.line, c.reason)
			}
		})
	}
}

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
		"defaults":                 {"content: a", "a", 0o644, "root:root", 0},
		"no content":               {"append: false", "", 0o644, "root:root", 0},
		"block adds a newline":     {"content: |\n    a\n", "a\n", 0o644, "root:root", 0},
		"block keeps one newline":  {"content: |\n    a\n\n\n", "a\n", 0o644, "root:root", 0},
		"CRLF becomes LF":          {"content: |\r\n    a\r\n    b\r\n", "a\nb\n", 0o644, "root:root", 0},
		"escapes":                  {`content: "a\tb\x41"`, "a\tbA", 0o644, "root:root", 0},
		"base64":                   {"encoding: b64\n  content: " + b64([]byte("x\n")), "x\n", 0o644, "root:root", 0},
		"base64 in a block":        {"encoding: \"base64\"\n  content: |\n    eHh4\n    eHg=\n", "xxxxx", 0o644, "root:root", 0},
		"gzip and base64":          {"encoding: gzip+base64\n  content: " + b64(zipped("zz")), "zz", 0o644, "root:root", 0},
		"gz+b64, upper case":       {"encoding: ' GZ+B64 '\n  content: " + b64(zipped("zz")), "zz", 0o644, "root:root", 0},
		"gzip of binary":           {"encoding: gz\n  content: !!binary " + b64(zipped("zz")), "zz", 0o644, "root:root", 0},
		"binary":                   {"content: !!binary /w==", "\xff", 0o644, "root:root", 0},
		"quoted mode":              {"permissions: '0600'", "", 0o600, "root:root", 0},
		"unquoted octal mode":      {"permissions: 0640", "", 0o640, "root:root", 0},
		"decimal mode":             {"permissions: 420", "", 0o644, "root:root", 1},
		"mode zero":                {"permissions: '0000'", "", 0o644, "root:root", 1},
		"undecodable mode":         {"permissions: u=rw", "", 0o644, "root:root", 1},
		"set-user-ID is lost":      {"permissions: '4755'", "", 0o755, "root:root", 1},
		"set-group-ID is lost":     {"permissions: '2755'", "", 0o755, "root:root", 1},
		"sticky":                   {"permissions: '1777'", "", 0o777 | fs.ModeSticky, "root:root", 0},
		"owner alone":              {"owner: kube", "", 0o644, "kube:", 0},
		"owner and group":          {"owner: 'kube : adm'", "", 0o644, "kube:adm", 0},
		"owner none":               {"owner: none:-1", "", 0o644, ":", 0},
		"unknown key":              {"contents: x", "", 0o644, "root:root", 1},
		"last duplicate key wins":  {"content: a\n  content: b", "b", 0o644, "root:root", 0},
		"YAML 1.1 in a quoted one": {"content: 'yes'", "yes", 0o644, "root:root", 0},
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

// Lists are words for no shell to expand, with Python's spelling of what YAML
// 1.1 makes of them.
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
	if got := bootstrap.Script(config.Commands); got != want {
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
		"in a script it runs": {"write_files:\n- path: /opt/up\n  content: touch /run/cluster-api/bootstrap-success.complete\nruncmd:\n- sh /opt/up\n", true},
		"in a file it leaves": {"write_files:\n- path: /opt/up\n  content: touch /run/cluster-api/bootstrap-success.complete\nruncmd:\n- echo\n", false},
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
  ssh_authorized_keys: [k1, k2, k1]
  uid: 1005
  nonsense: 1
- name: plain
  gecos: 5
  sudo: false
  groups: a, b
- kube
`)
	want := []bootstrap.User{
		{Name: "kube", Gecos: "Kube User", Groups: []string{"wheel", "docker"}, Password: "$6$x$y", Sudo: []string{"ALL=(ALL) NOPASSWD:ALL"}, SSHKeys: []string{"k1", "k2"}, UID: "1005"},
		{Name: "plain", Lock: true, Groups: []string{"a", "b"}},
	}
	if !reflect.DeepEqual(config.Users, want) {
		t.Errorf("got  %+v\nwant %+v", config.Users, want)
	}
	if groups := []bootstrap.Group{{Name: "adm2"}, {Name: "ops", Members: []string{"a", "b"}}}; !reflect.DeepEqual(config.Groups, groups) {
		t.Errorf("got groups %+v", config.Groups)
	}
	var text []string
	for _, w := range warnings {
		text = append(text, w.String())
	}
	if all := strings.Join(text, "\n"); len(text) != 4 || !strings.Contains(all, "line 12: user kube: inactive is a boolean, which has no effect") {
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
	disks := []bootstrap.Disk{
		{Device: "/dev/sdb", TableType: "gpt", Overwrite: true, Partitions: []bootstrap.Partition{{Percent: 33}, {Percent: 66, Type: "82"}}},
		{Device: "/dev/sdc", TableType: "mbr", Whole: true},
	}
	if !reflect.DeepEqual(config.Disks, disks) {
		t.Errorf("got disks %+v", config.Disks)
	}
	filesystems := []bootstrap.Filesystem{
		{Label: "etcd", Type: "ext4", Device: "/dev/sdb", Partition: "1", Options: []string{"-E", "lazy_itable_init=1"}},
		{Type: "xfs", Device: "/dev/sdc", Partition: "2"},
	}
	if !reflect.DeepEqual(config.Filesystems, filesystems) {
		t.Errorf("got file systems %+v", config.Filesystems)
	}
	mounts := []bootstrap.Mount{
		{"LABEL=etcd", "/var/lib/etcd", "auto", "defaults,nofail,_netdev", "0", "2"},
		{"tmpfs", "/tmp/x", "tmpfs", "size=1g", "0", "0"},
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
	for in, want := range map[string]*bootstrap.NTP{
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

func TestJinja(t *testing.T) {
	t.Parallel()
	const body = header + "write_files:\n- path: /a\n  content: |\n    {{ ds.meta_data.local_hostname }} {{ ds.meta_data['instance-id'] }} {{ v1.local_hostname }} {{ instance_id }} {{ ds.meta_data.nope }}\n"
	config, warnings := parse(t, "## template: jinja\n"+body)
	if got := string(config.Files[0].Content); got != "edge-7 i-1 edge-7 i-1 CI_MISSING_JINJA_VAR/nope\n" {
		t.Errorf("got %q", got)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0].Text, `"nope" is undefined`) {
		t.Errorf("got warnings %v", warnings)
	}
	// Without the header braces are text.
	config, _ = parse(t, body)
	if got := string(config.Files[0].Content); !strings.HasPrefix(got, "{{ ds.meta") {
		t.Errorf("got %q", got)
	}
}

func TestGzippedDocument(t *testing.T) {
	t.Parallel()
	config, _ := parse(t, string(zipped(header+"runcmd: [a]\n")))
	if len(config.Commands) != 1 {
		t.Errorf("got %+v", config)
	}
}

func TestWarningsNameLineAndKey(t *testing.T) {
	t.Parallel()
	_, warnings := parse(t, "## template: jinja\n"+header+"packages: [a]\nwritefiles: []\nruncmd: [a]\n")
	want := []string{
		`line 3: "packages" is a key of cloud-init that this agent does not execute`,
		`line 4: unknown key "writefiles"`,
	}
	if len(warnings) != 2 || warnings[0].String() != want[0] || warnings[1].String() != want[1] {
		t.Errorf("got %v", warnings)
	}
}
