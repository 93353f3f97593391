package parser_test

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

func ignite(t *testing.T, text string) (*bootstrapdata.Config, []bootstrapdata.Warning) {
	t.Helper()
	config, warnings, err := parser.Parse([]byte(text), bootstrapdata.FormatIgnition, nil)
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	return config, warnings
}

// v3 and v2 return a document of that version with the given sections.
func v3(sections string) string {
	return `{"ignition": {"version": "3.4.0"}, ` + sections + `}`
}

func v2(sections string) string {
	return `{"ignition": {"version": "2.3.0"}, ` + sections + `}`
}

func TestIgnitionFile(t *testing.T) {
	t.Parallel()
	sum := sha512.Sum512([]byte("zz"))
	hash := "sha512-" + hex.EncodeToString(sum[:])
	b64 := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct {
		document string
		want     bootstrapdata.File
	}{
		"defaults": {v3(`"storage": {"files": [{"path": "/a//b/../c"}]}`), bootstrapdata.File{Path: "/a/c", Append: true, KeepMode: true}},
		"contents": {v3(`"storage": {"files": [{"path": "/a", "contents": {"source": "data:,a%20b+c%0A"}, "mode": 384}]}`),
			bootstrapdata.File{Content: []byte("a b+c\n"), User: "root", Group: "root", Mode: 0o600, New: true}},
		"empty contents": {v3(`"storage": {"files": [{"path": "/a", "overwrite": true, "contents": {"source": ""}}]}`),
			bootstrapdata.File{User: "root", Group: "root"}},
		"base64": {v3(`"storage": {"files": [{"path": "/a", "overwrite": true, "contents": {"source": "data:text/plain;charset=utf-8;base64,/+8="}}]}`),
			bootstrapdata.File{Content: []byte("\xff\xef"), User: "root", Group: "root"}},
		"gzip, verified": {v3(`"storage": {"files": [{"path": "/a", "overwrite": true, "contents": {"compression": "gzip", "source": "data:;base64,` + url.PathEscape(b64(zipped("zz"))) + `", "verification": {"hash": "` + hash + `"}}}]}`),
			bootstrapdata.File{Content: []byte("zz"), User: "root", Group: "root"}},
		"append": {v3(`"storage": {"files": [{"path": "/a", "append": [{"source": "data:,b"}, {"source": "data:,c"}]}]}`),
			bootstrapdata.File{Content: []byte("bc"), Append: true, KeepMode: true}},
		"append and contents": {v3(`"storage": {"files": [{"path": "/a", "append": [{"source": "data:,b"}], "contents": {"source": "data:,a"}}]}`),
			bootstrapdata.File{Content: []byte("ab"), User: "root", Group: "root", New: true}},
		"owner by id": {v3(`"storage": {"files": [{"path": "/a", "overwrite": true, "user": {"id": 500}, "group": {"name": "adm"}, "contents": {"source": "data:,"}}]}`),
			bootstrapdata.File{Content: []byte(""), UID: new(500), Group: "adm"}},
		"special bits": {v3(`"storage": {"files": [{"path": "/a", "mode": 3565, "overwrite": true, "contents": {"source": ""}}]}`),
			bootstrapdata.File{User: "root", Group: "root", Mode: 0o755 | fs.ModeSetuid | fs.ModeSetgid}},
		"2.3 overwrites": {v2(`"storage": {"files": [{"filesystem": "root", "path": "/a", "contents": {"source": "data:,a"}}]}`),
			bootstrapdata.File{Content: []byte("a"), User: "root", Group: "root"}},
		"2.3 does not": {v2(`"storage": {"files": [{"filesystem": "root", "overwrite": false, "path": "/a", "contents": {}}]}`),
			bootstrapdata.File{User: "root", Group: "root", New: true}},
		"2.3 appends": {v2(`"storage": {"files": [{"path": "/a", "append": true, "contents": {"source": "data:,a"}, "filesystem": "root", "user": {"name": "kube"}}]}`),
			bootstrapdata.File{Content: []byte("a"), Append: true, KeepMode: true, User: "kube"}},
		"2.3 elsewhere": {v2(`"storage": {"filesystems": [{"name": "oem", "path": "/oem"}], "files": [{"path": "/a", "filesystem": "oem"}]}`),
			bootstrapdata.File{Path: "/oem/a", User: "root", Group: "root"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, warnings := ignite(t, c.document)
			c.want.Defer = true
			if c.want.Path == "" {
				c.want.Path = "/a"
			}
			if c.want.Mode == 0 {
				c.want.Mode = 0o644
			}
			if got := config.Files[0]; !reflect.DeepEqual(got, c.want) || len(warnings) != 0 {
				t.Errorf("got  %+v\nwant %+v\n%v", got, c.want, warnings)
			}
		})
	}
}

func TestIgnitionNodes(t *testing.T) {
	t.Parallel()
	config, warnings := ignite(t, v3(`"storage": {
		"directories": [{"path": "/a/b", "mode": 448, "user": {"name": "kube"}}, {"path": "/a", "group": {"id": 7}}, {"path": "/n", "overwrite": true}],
		"links": [{"path": "/etc/localtime", "target": "../usr/share/zoneinfo/UTC", "overwrite": true}, {"path": "/h", "target": "/a", "hard": true, "user": {"id": 1}}],
		"files": [{"path": "/etc/hostname", "overwrite": true, "contents": {"source": "data:,edge-9%0A"}}],
		"filesystems": [{"device": "/dev/sdb", "format": "ext4", "label": "data", "uuid": "u", "options": ["-E", "x"], "path": "/var/data"}, {"device": "/dev/sdc", "format": "none"}]
	}, "nonsense": 1`))
	if want := []bootstrapdata.Directory{
		{Path: "/a", GID: new(7), Mode: 0o755, KeepMode: true},
		{Path: "/n", Mode: 0o755, KeepMode: true, New: true},
		{Path: "/a/b", User: "kube", Mode: 0o700},
	}; !reflect.DeepEqual(config.Directories, want) {
		t.Errorf("got  %+v\nwant %+v", config.Directories, want)
	}
	if want := []bootstrapdata.Link{
		{Path: "/etc/localtime", Target: "../usr/share/zoneinfo/UTC", Overwrite: true},
		{Path: "/h", Target: "/a", Hard: true},
	}; !reflect.DeepEqual(config.Links, want) {
		t.Errorf("got  %+v\nwant %+v", config.Links, want)
	}
	if want := []bootstrapdata.Filesystem{
		{Label: "data", Type: "ext4", Device: "/dev/sdb", Partition: "none", Keep: true, UUID: "u", Options: []string{"-E", "x"}},
	}; !reflect.DeepEqual(config.Filesystems, want) {
		t.Errorf("got  %+v\nwant %+v", config.Filesystems, want)
	}
	if config.HostName == nil || config.HostName.Name != "edge-9" {
		t.Errorf("got host name %v", config.HostName)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0].String(), `line 6: unknown key "nonsense"`) || !strings.Contains(warnings[1].Text, "owner of a link") {
		t.Errorf("got warnings %v", warnings)
	}
}

func TestIgnitionAccountsAndUnits(t *testing.T) {
	t.Parallel()
	config, _ := ignite(t, v3(`"passwd": {
		"groups": [{"name": "ops", "gid": 700, "system": true}],
		"users": [{"name": "kube", "passwordHash": "$6$x$y", "sshAuthorizedKeys": ["k1", "k1"], "groups": ["ops"], "uid": 1005, "gecos": "K", "homeDir": "/k", "primaryGroup": "adm", "shell": "/bin/sh", "system": true, "shouldExist": true, "noUserGroup": true, "noLogInit": true}, {"name": "locked", "passwordHash": ""}]
	}, "systemd": {"units": [
		{"name": "up.service", "enabled": true, "contents": "[Service]\nExecStart=/opt/up\n"},
		{"name": "old.service", "enabled": false},
		{"name": "bad.service", "mask": true},
		{"name": "docker.service", "dropins": [{"name": "10-a.conf", "contents": "[Service]\nX=1\n"}, {"name": "empty.conf"}]},
		{"name": "tpl@.service", "enabled": true, "contents": "[Service]\n"}
	]}, "storage": {"files": [{"path": "/opt/up", "mode": 493, "contents": {"source": "data:,touch%20/run/cluster-api/bootstrap-success.complete"}}]}`))
	if want := []bootstrapdata.Group{{Name: "ops", GID: "700", System: true}}; !reflect.DeepEqual(config.Groups, want) {
		t.Errorf("got groups %+v", config.Groups)
	}
	if want := []bootstrapdata.User{{
		Name: "kube", Gecos: "K", HomeDir: "/k", Shell: "/bin/sh", PrimaryGroup: "adm", UID: "1005", Groups: []string{"ops"}, System: true, NoUserGroup: true, NoLogInit: true,
		KeepGroups: true, Password: "*", HashedPassword: "$6$x$y", SSHKeys: []string{"k1"}, Plain: true,
	}, {Name: "locked", KeepGroups: true, Password: "*", HashedPassword: "*", Plain: true}}; !reflect.DeepEqual(config.Users, want) {
		t.Errorf("got  %+v\nwant %+v", config.Users, want)
	}
	if want := []bootstrapdata.Unit{
		{Name: "up.service", Enable: true, Given: true, Changed: true, Awaited: true},
		{Name: "old.service", Disable: true}, {Name: "bad.service", Mask: true},
		{Name: "docker.service", Changed: true}, {Name: "tpl@.service", Enable: true, Given: true, Changed: true},
	}; !reflect.DeepEqual(config.Units, want) {
		t.Errorf("got  %+v\nwant %+v", config.Units, want)
	}
	var paths []string
	for _, f := range config.Files {
		paths = append(paths, f.Path)
	}
	if got := strings.Join(paths, " "); got != "/opt/up /etc/systemd/system/up.service /etc/systemd/system/docker.service.d/10-a.conf /etc/systemd/system/tpl@.service" {
		t.Errorf("got files %s", got)
	}
	if config.Sentinel == "" || len(config.Links) != 1 || config.Links[0].Target != "/dev/null" {
		t.Errorf("got sentinel %q, links %v", config.Sentinel, config.Links)
	}
}

func TestIgnitionRefuses(t *testing.T) {
	t.Parallel()
	file := func(rest string) string { return v3(`"storage": {"files": [{"path": "/a", ` + rest + `}]}`) }
	unit := func(rest string) string { return v3(`"systemd": {"units": [{` + rest + `}]}`) }
	for name, c := range map[string]struct{ in, want string }{
		"malformed":           {"{\n\"ignition\": {\n]", "line 3: malformed JSON"},
		"cut off":             {"{\n\"ignition\": {", "line 2: malformed JSON"},
		"no object":           {"[]", "a list, not a JSON object"},
		"text at the end":     {"{}\n{}", "something follows"},
		"duplicate key":       {"{\"ignition\": {},\n\"ignition\": {}}", "line 2: the key \"ignition\" appears twice"},
		"deep":                {strings.Repeat("[", 100), "nested more than"},
		"no version":          {`{"ignition": {}}`, "ignition.version is missing"},
		"version 1":           {`{"ignition": {"version": "1.0.0"}}`, "is unknown"},
		"version 3.99":        {`{"ignition": {"version": "3.99.0"}}`, "is unknown"},
		"experimental":        {`{"ignition": {"version": "3.4.0-experimental"}}`, "is unknown"},
		"version number":      {`{"ignition": {"version": 3}}`, "not a string"},
		"remote config":       {`{"ignition": {"version": "3.4.0", "config": {"replace": {"source": "s3://x"}}}}`, "remote sources are not fetched"},
		"remote configs":      {`{"ignition": {"version": "2.3.0", "config": {"append": [{"source": "https://x"}]}}}`, "remote sources are not fetched"},
		"kernel arguments":    {v3(`"kernelArguments": {"shouldExist": ["quiet"]}`), "cannot be done on a running system"},
		"networkd":            {v2(`"networkd": {"units": [{"name": "a.network"}]}`), "not taken into use on a running system"},
		"disks":               {v3(`"storage": {"disks": [{"device": "/dev/sdb"}]}`), "storage.disks cannot be done on a running system"},
		"raid":                {v3(`"storage": {"raid": [{}]}`), "storage.raid cannot"},
		"luks":                {v3(`"storage": {"luks": [{}]}`), "storage.luks cannot"},
		"wipe":                {v3(`"storage": {"filesystems": [{"device": "/dev/sdb", "format": "ext4", "wipeFilesystem": true}]}`), "wiping a file system cannot be done"},
		"force":               {v2(`"storage": {"filesystems": [{"mount": {"device": "/dev/sdb", "format": "ext4", "create": {"force": true}}}]}`), "wiping a file system"},
		"no device":           {v3(`"storage": {"filesystems": [{"format": "ext4"}]}`), "has no device"},
		"format":              {v3(`"storage": {"filesystems": [{"device": "/dev/sdb", "format": "zfs"}]}`), "known are ext4"},
		"file on file system": {v3(`"storage": {"filesystems": [{"device": "/dev/sdb", "format": "ext4", "path": "/d"}], "files": [{"path": "/d/a"}]}`), "/d/a is on the file system of /d"},
		"file on another":     {v2(`"storage": {"files": [{"path": "/a", "filesystem": "data"}]}`), "not the root file system"},
		"no path":             {v3(`"storage": {"files": [{}]}`), "has no path"},
		"relative path":       {v3(`"storage": {"files": [{"path": "a"}]}`), "not an absolute path"},
		"no object in list":   {v3(`"storage": {"files": ["a"]}`), "not an object"},
		"files no list":       {v3(`"storage": {"files": {}}`), "not a list"},
		"mode":                {file(`"mode": 4096`), "whole number from 0 to 4095"},
		"mode of text":        {file(`"mode": "0644"`), "whole number"},
		"http":                {file(`"contents": {"source": "https://x/y"}`), "remote sources are not fetched"},
		"tftp":                {file(`"contents": {"source": "tftp://x/y"}`), "remote sources are not fetched"},
		"no comma":            {file(`"contents": {"source": "data:text"}`), "no comma"},
		"bad escape":          {file(`"contents": {"source": "data:,%zz"}`), "decoding the data URL"},
		"bad base64":          {file(`"contents": {"source": "data:;base64,*"}`), "bad base64"},
		"compression":         {file(`"contents": {"source": "data:,", "compression": "xz"}`), "known is gzip"},
		"bad gzip":            {file(`"contents": {"source": "data:,a", "compression": "gzip"}`), "gzip header"},
		"hash differs":        {file(`"contents": {"source": "data:,a", "verification": {"hash": "sha256-00"}}`), "has the hash sha256-ca97"},
		"hash unknown":        {file(`"contents": {"source": "data:,a", "verification": {"hash": "md5-00"}}`), "is unknown"},
		"owner twice":         {file(`"user": {"id": 0, "name": "root"}`), "both a name and an id"},
		"overwrite nothing":   {file(`"overwrite": true`), "no contents.source"},
		"append, overwrite":   {v2(`"storage": {"files": [{"path": "/a", "filesystem": "root", "append": true, "overwrite": true}]}`), "both append and overwrite"},
		"flag":                {file(`"overwrite": 1`), "not true or false"},
		"link no target":      {v3(`"storage": {"links": [{"path": "/a"}]}`), "no target"},
		"hard relative":       {v3(`"storage": {"links": [{"path": "/a", "target": "b", "hard": true}]}`), "absolute path"},
		"user no name":        {v3(`"passwd": {"users": [{}]}`), "no name"},
		"user name":           {v3(`"passwd": {"users": [{"name": "-r"}]}`), "not a name"},
		"user to remove":      {v3(`"passwd": {"users": [{"name": "a", "shouldExist": false}]}`), "removing users"},
		"user without home":   {v3(`"passwd": {"users": [{"name": "a", "noCreateHome": true, "sshAuthorizedKeys": ["k"]}]}`), "no home directory"},
		"user created":        {v2(`"passwd": {"users": [{"name": "a", "create": {"uid": 5}}]}`), "of version 1"},
		"group no name":       {v3(`"passwd": {"groups": [{}]}`), "no name"},
		"group password":      {v3(`"passwd": {"groups": [{"name": "a", "passwordHash": "x"}]}`), "passwords of groups"},
		"unit no name":        {unit(`"enabled": true`), "no name"},
		"unit name":           {unit(`"name": "a'b.service"`), "not the name of a systemd unit"},
		"unit path":           {unit(`"name": "../a.service"`), "not the name of a systemd unit"},
		"unit text":           {unit(`"name": "a.service", "contents": "x"`), "no section"},
		"unit masked":         {unit(`"name": "a.service", "mask": true, "enabled": true`), "is masked"},
		"drop-in name":        {unit(`"name": "a.service", "dropins": [{"name": "a"}]`), "ends in .conf"},
		"drop-in no name":     {unit(`"name": "a.service", "dropins": [{"contents": "a"}]`), "no name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := parser.Parse([]byte(c.in), bootstrapdata.FormatIgnition, nil)
			var at *bootstrapdata.ParseError
			if !errors.As(err, &at) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A document of the kubeadm provider with disks is an error as a whole.
func TestIgnitionDocumentWithDisks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "cabpk-disks.ign"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = parser.Parse(text, bootstrapdata.FormatIgnition, nil); err == nil || !strings.Contains(err.Error(), "storage.disks cannot be done on a running system") {
		t.Errorf("got %v", err)
	}
}
