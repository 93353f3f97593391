package parser_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

// seed adds the files of testdata with the given ending.
func seed(f *testing.F, ending string) {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*"+ending))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no test data with the ending %q: %v", ending, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
}

// check parses and describes a document. The result is an error with a text, or a Config
// within the limits and with clean paths only.
func check(t *testing.T, data []byte, format string) {
	t.Helper()
	config, _, err := parser.Parse(data, format, hostVariables())
	if err != nil {
		if strings.TrimSpace(err.Error()) == "" || config != nil {
			t.Errorf("got %+v and the error %q", config, err)
		}
		return
	}
	size := 0
	for _, file := range config.Files {
		size += len(file.Content)
		if !filepath.IsAbs(file.Path) || file.Path != filepath.Clean(file.Path) || file.Path == "/" || strings.Contains(file.Path, "\x00") {
			t.Errorf("got the path %q", file.Path)
		}
	}
	if size > 64<<20 {
		t.Errorf("got %d bytes of content", size)
	}
	for _, s := range config.Scripts {
		if s.Name == "" || strings.ContainsAny(s.Name, "/\x00") || strings.Trim(s.Name, ".") == "" {
			t.Errorf("got the script name %q", s.Name)
		}
	}
	for _, u := range config.Units {
		if strings.ContainsAny(u.Name, "/' \n") || strings.HasPrefix(u.Name, "-") {
			t.Errorf("got the unit name %q", u.Name)
		}
	}
	var out bytes.Buffer
	if err := bootstrapdata.Describe(&out, config); err != nil {
		t.Error(err)
	}
}

func FuzzCloudConfig(f *testing.F) {
	seed(f, ".yaml")
	f.Add([]byte(header + "a: &a [*a]\n"))
	f.Add([]byte(header + "users:\n- name: a\n  groups: {b: 1}\nntp:\nmounts: [[sdb]]\ndisk_setup: {/dev/sdb: {layout: [50, [50, 82]]}}\nfs_setup: [{device: /dev/sdb, filesystem: xfs}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data, bootstrapdata.FormatCloudConfig) })
}

func FuzzMIME(f *testing.F) {
	f.Add([]byte(message(named("text/x-shellscript", "a", "#!/bin/sh\n"), named("text/cloud-config", "b", "runcmd: [a]\n"))))
	f.Add([]byte(message("Content-Type: multipart/mixed; boundary=in\n\n--in\n\n#!/bin/sh\n--in--\n")))
	f.Add([]byte(message("Content-Transfer-Encoding: quoted-printable\n\n#!/bin/sh =3D\n")))
	f.Add([]byte(message("\n#cloud-config\nruncmd: [a]\n", "\n#cloud-config\nmerge_how: list(append)+dict(recurse_array)\nruncmd: [b]\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !bytes.HasPrefix(data, []byte("MIME-Version:")) {
			data = append([]byte("MIME-Version: 1.0\n"), data...)
		}
		check(t, data, bootstrapdata.FormatCloudConfig)
	})
}

func FuzzIgnition(f *testing.F) {
	seed(f, ".ign")
	f.Add([]byte(v3(`"storage": {"files": [{"path": "/a", "append": [{"source": "data:;base64,YQ=="}]}], "links": [{"path": "/b", "target": "c"}]}`)))
	f.Add([]byte(v2(`"storage": {"filesystems": [{"name": "oem", "path": "/oem"}], "files": [{"path": "/a", "filesystem": "oem"}]}`)))
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data, bootstrapdata.FormatIgnition) })
}
