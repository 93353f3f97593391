package parser_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

// message returns a MIME message. Each part consists of headers, an empty line and a
// body.
func message(parts ...string) string {
	out := "Content-Type: multipart/mixed; boundary=\"==b==\"\nMIME-Version: 1.0\n\n"
	for _, p := range parts {
		out += "--==b==\n" + p + "\n"
	}
	return out + "--==b==--\n"
}

func named(mime, name, body string) string {
	return "Content-Type: " + mime + "\nMIME-Version: 1.0\nContent-Disposition: attachment; filename=\"" + name + "\"\n\n" + body
}

func TestScriptDocument(t *testing.T) {
	t.Parallel()
	config, _ := parse(t, "#!/bin/bash -e\r\ntouch /run/cluster-api/bootstrap-success.complete\r\n")
	want := bootstrapdata.ScriptFile{Name: "part-001", Body: "#!/bin/bash -e\ntouch /run/cluster-api/bootstrap-success.complete\n"}
	if len(config.Scripts) != 1 || config.Scripts[0] != want || config.Sentinel == "" {
		t.Errorf("got %+v", config)
	}
	config, _ = parse(t, "## template: jinja\n#!/bin/sh\necho {{ v1.local_hostname }}\n")
	if got := config.Scripts[0].Body; got != "#!/bin/sh\necho edge-7\n" {
		t.Errorf("got %q", got)
	}
}

// Parts without a name are numbered in the order of all parts, and scripts are
// sorted by name.
func TestMessage(t *testing.T) {
	t.Parallel()
	zip := base64.StdEncoding.EncodeToString(zipped("#!/bin/sh\necho zipped\n"))
	config, warnings := parse(t, message(
		named("text/cloud-config", "cloud.cfg", "runcmd: [echo runcmd]\n"),
		named("text/x-shellscript", "script.sh", "#!/bin/sh\necho named"),
		"Content-Type: text/x-shellscript\n\n#!/bin/sh\necho third\n",
		"Content-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n"+zip,
		named("text/jinja2; charset=us-ascii", "j", "## template: jinja\n#!/bin/sh\necho {{ v1.local_hostname }}\n"),
		"\n#!/bin/sh\necho no headers",
		"Content-Type: text/plain; name=q\nContent-Transfer-Encoding: quoted-printable\n\n#!/bin/sh\necho a=3Db=\nc\n",
		"Content-Type: multipart/mixed; boundary=in\n\n--in\n\n#!/bin/sh\necho nested\n--in--\n",
		named("text/x-shellscript", "../a b", "#!/bin/sh\n"),
	))
	var got []string
	for _, s := range config.Scripts {
		got = append(got, s.Name+" "+strings.TrimPrefix(strings.TrimSpace(s.Body), "#!/bin/sh\n"))
	}
	want := "..__a #!/bin/sh,j echo edge-7,part-003 echo third,part-004 echo zipped,part-006 echo no headers,part-008 echo nested,q echo a=bc,script.sh echo named"
	want = strings.Replace(want, "..__a ", ".._ab ", 1)
	if strings.Join(got, ",") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ","), want)
	}
	if len(config.Commands) != 1 {
		t.Errorf("got commands %v", config.Commands)
	}
	if len(warnings) != 1 || warnings[0].String() != `part 9 (../a b): the script "../a b" is called ".._ab"` {
		t.Errorf("got warnings %v", warnings)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	const how = "merge_how: list(append)+dict(recurse_array)+str()\n"
	first := "Content-Type: text/cloud-config\n\nhostname: a\nruncmd: [one]\nntp: {servers: [x]}\n"
	for name, c := range map[string]struct{ second, commands, servers string }{
		"other keys":     {"\n\n#cloud-config\nbootcmd: [b]\nhostname: a\n", "one", "x"},
		"append":         {"Content-Type: text/cloud-config\n\n" + how + "runcmd: [two]\nntp: {servers: [y]}\n", "one two", "x y"},
		"prepend":        {"Content-Type: text/cloud-config\n\nmerge_type: [{name: list, settings: [prepend]}, {name: dict, settings: [recurse_array]}]\nruncmd: [two]\n", "two one", "x"},
		"in a header":    {"Content-Type: text/cloud-config\nMerge-Type: list(append)+dict(no_replace, recurse_array)\n\nruncmd: [two]\n", "one two", "x"},
		"in an X-header": {"Content-Type: text/cloud-config\nX-Merge-Type: dict(recurse_array)+list(append)\n\nruncmd: [two]\n", "one two", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, warnings := parse(t, message(first, c.second))
			var commands []string
			for _, command := range config.Commands {
				commands = append(commands, command.Shell)
			}
			if got := strings.Join(commands, " "); got != c.commands || len(warnings) != 0 {
				t.Errorf("got %q, %v", got, warnings)
			}
			if got := strings.Join(config.NTP.Servers, " "); got != c.servers || config.HostName.Name != "a" {
				t.Errorf("got %q, %v", got, config.HostName)
			}
		})
	}
}

// cloud-init would ignore the faulty part of each of these documents and only log it.
func TestMessageRefuses(t *testing.T) {
	t.Parallel()
	script := "Content-Type: text/x-shellscript\n\n#!/bin/sh\n"
	for name, c := range map[string]struct{ in, want string }{
		"lists to replace":      {message("\n#cloud-config\nruncmd: [a]\n", "\n#cloud-config\na: b\nruncmd: [b]\n"), "part 2: line 3: runcmd is in an earlier part too"},
		"lists by index":        {message("\n#cloud-config\nruncmd: [a]\n", "\n#cloud-config\nmerge_how: list()+dict(recurse_array)\nruncmd: [b]\n"), "part 2: line 3"},
		"mapping to replace":    {message("\n#cloud-config\nruncmd: [a]\n", "\n#cloud-config\nmerge_how: list(append)+dict(replace)\nruncmd: [b]\n"), "part 2: line 3"},
		"mappings":              {message("\n#cloud-config\nntp: {servers: [a]}\n", "\n#cloud-config\nntp: {pools: [a]}\n"), "ntp is in an earlier part"},
		"scalars":               {message("\n#cloud-config\nhostname: a\n", "\n#cloud-config\nmerge_how: dict()\nhostname: b\n"), "hostname is in an earlier part"},
		"merge_how":             {message("\n#cloud-config\nmerge_how: [\n"), "malformed YAML"},
		"merge_how a map":       {message("\n#cloud-config\nmerge_how: {a: b}\nruncmd: []\n"), "line 2: merge_how is a mapping"},
		"merge_how unclosed":    {message("\n#cloud-config\nmerge_how: list(append\nruncmd: []\n"), "does not say how"},
		"within a part":         {message(script, named("text/cloud-config", "c.cfg", "write_files:\n- a\n")), "part 2 (c.cfg): line 2: write_files[0]"},
		"same name":             {message(named("text/x-shellscript", "a", "#!/bin/sh\n"), named("text/x-shellscript", "a", "#!/bin/sh\n")), "two scripts named"},
		"named runcmd":          {message(named("text/x-shellscript", "runcmd", "#!/bin/sh\n"), "\n#cloud-config\nruncmd: [a]\n"), `named "runcmd"`},
		"no name left":          {message(named("text/x-shellscript", "***", "#!/bin/sh\n")), "not a name"},
		"Jinja in cloud-config": {message("Content-Type: text/cloud-config\n\n## template: jinja\n#cloud-config\na: b\n"), "would not render"},
		"Jinja without header":  {message("Content-Type: text/jinja2\n\n## template: jinja\nfoo\n"), "is missing"},
		"Jinja error":           {message("Content-Type: text/jinja2\n\n## template: jinja\n#!/bin/sh\n{{ a.b.c }}\n"), "part 1: line 3: jinja"},
		"no header":             {message("\necho\n"), "header that says what it is"},
		"script without #!":     {message("Content-Type: text/x-shellscript\n\necho\n"), `does not start with "#!"`},
		"space before #!":       {"\n#!/bin/sh\n", `does not start with "#!"`},
		"no program":            {"#!sh\n", "does not name a program"},
		"boothook":              {message("\n#cloud-boothook\n"), "boothook"},
		"per boot":              {message("Content-Type: text/x-shellscript-per-boot\n\n#!/bin/sh\n"), "own schedule"},
		"unknown type":          {message("Content-Type: image/png\n\nx\n"), "of the type image/png"},
		"include":               {message("\n#include https://x\n"), "not fetched"},
		"bad base64":            {message("Content-Transfer-Encoding: base64\n\n*\n"), "bad base64"},
		"unknown encoding":      {message("Content-Transfer-Encoding: rot13\n\n#!/bin/sh\n"), "unknown Content-Transfer-Encoding"},
		"gzip without type":     {message("Content-Transfer-Encoding: base64\n\n" + base64.StdEncoding.EncodeToString(zipped("#!/bin/sh\n"))), "would not unpack"},
		"type without gzip":     {message("Content-Type: application/gzip\n\n#!/bin/sh\n"), "not gzip data"},
		"gzip cut off":          {message("Content-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n" + base64.StdEncoding.EncodeToString(zipped("#!/bin/sh\n")[:20])), "truncated"},
		"not UTF-8":             {message("Content-Transfer-Encoding: base64\n\n/////w==\n"), "not UTF-8"},
		"cut off":               {strings.TrimSuffix(message(script), "--==b==--\n"), "cut off"},
		"cut off between":       {strings.TrimSuffix(message(script), "--\n") + "\n", "cut off"},
		"no boundary":           {"MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n", "no boundary"},
		"no parts":              {"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=a\n\n--a--\n", "no parts"},
		"headers":               {"MIME-Version: 1.0\nnonsense\n\n", "reading the headers"},
		"type":                  {message("Content-Type: ;\n\n#!/bin/sh\n"), "Content-Type"},
		"disposition":           {message("Content-Disposition: ;\n\n#!/bin/sh\n"), "Content-Disposition"},
		"empty part":            {message("\n"), "empty"},
		"too many":              {message(strings.Split(strings.Repeat("|\n#!/bin/sh\n", 258), "|")[1:]...), "more than the 256 parts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := parser.Parse([]byte(c.in), "", hostVariables())
			var at *bootstrapdata.ParseError
			if !errors.As(err, &at) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
