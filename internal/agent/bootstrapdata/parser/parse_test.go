package parser_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

const header = "#cloud-config\n"

func parse(t *testing.T, text string) (*bootstrapdata.Config, []bootstrapdata.Warning) {
	t.Helper()
	config, warnings, err := parser.Parse([]byte(text), "", hostVariables())
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	return config, warnings
}

func hostVariables() bootstrapdata.Variables {
	return bootstrapdata.NewVariables(
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

// cloud-init would ignore the faulty part of each of these documents, often without a
// message in its log.
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
		"Jinja syntax":          {"## template: jinja\n" + header + "runcmd:\n- echo ${#a[@]}\n", "", 4, "jinja"},
		"Jinja undefined":       {"## template: jinja\n" + header + "a: {{ x.y.z }}\n", "", 3, "undefined"},
		"other template":        {"## template: mako\n" + header + "a: b\n", "", 0, ""},
		"Jinja moves lines":     {"## template: jinja\n" + header + "{% if true %}\nruncmd: 1\n{% endif %}\n", "", 2, "not a list"},
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
		"system user with keys": {header + "users:\n- name: a\n  system: true\n  ssh_authorized_keys: [ssh-rsa k]\n", "", 0, "no home directory"},
		"random password":       {header + "chpasswd:\n  users:\n  - {name: a, type: RANDOM}\n", "", 4, "set one"},
		"random, list":          {header + "chpasswd: {list: 'a:R'}\n", "", 2, "set one"},
		"password type":         {header + "chpasswd:\n  users:\n  - {name: a, type: md5, password: x}\n", "", 4, "neither hash nor text"},
		"no password":           {header + "chpasswd:\n  users:\n  - {name: a}\n", "", 4, "no password"},
		"password lines":        {header + "chpasswd:\n  users:\n  - {name: a, type: text, password: \"x\\nroot:y\"}\n", "", 4, "line break"},
		"password without user": {header + "chpasswd: {list: [secret]}\n", "", 2, "separated by a colon"},
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
			_, _, err := parser.Parse([]byte(c.in), c.format, hostVariables())
			var at *bootstrapdata.ParseError
			if !errors.As(err, &at) {
				t.Fatalf("got %v, want a ParseError", err)
			}
			if c.line != 0 && at.Line != c.line || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("got %q, want line %d and %q", err, c.line, c.reason)
			}
		})
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
	// Without the header, braces are literal text.
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
