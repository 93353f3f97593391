package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

// ignited is an Ignition document that uses each kind of step.
const ignited = `{"ignition": {"version": "3.4.0"},
"passwd": {"groups": [{"name": "ops", "gid": 700}], "users": [{"name": "kube", "groups": ["ops"], "passwordHash": "$6$x$y", "sshAuthorizedKeys": ["key-1"]}]},
"storage": {
  "filesystems": [{"device": "/dev/sdb", "format": "ext4", "label": "data"}],
  "directories": [{"path": "/etc/deep/er", "mode": 448, "user": {"name": "kube"}}, {"path": "/home/old", "mode": 448}],
  "files": [
    {"path": "/etc/motd", "append": [{"source": "data:,appended%0A"}]},
    {"path": "/opt/bin/up", "mode": 493, "user": {"id": 7}, "contents": {"source": "data:,touch%20/run/cluster-api/bootstrap-success.complete"}},
    {"path": "/etc/hostname", "overwrite": true, "contents": {"source": "data:,after%0A"}},
    {"path": "/etc/sysctl.d/k8s.conf", "contents": {"source": "data:,a%3D1"}}
  ],
  "links": [
    {"path": "/etc/localtime", "target": "/usr/share/utc", "overwrite": true},
    {"path": "/etc/fstab", "target": "/dev/null", "overwrite": true},
    {"path": "/opt/hard", "target": "/opt/bin/up", "hard": true}
  ]
},
"systemd": {"units": [
  {"name": "up.service", "enabled": true, "contents": "[Service]\nExecStart=/opt/bin/up\n"},
  {"name": "old.service", "enabled": false},
  {"name": "bad.service", "mask": true},
  {"name": "docker.service", "dropins": [{"name": "10-a.conf", "contents": "[Service]\nX=1\n"}]},
  {"name": "image.service", "enabled": true},
  {"name": "gone.service", "enabled": false}
]}}`

// ignite prepares a machine for a document with units. start is the shell command that
// the fake systemd runs when it starts them.
func ignite(m *machine, text, start string) *bootstrapdata.Config {
	m.t.Helper()
	m.file("/dev/sdb", "")
	m.file("/unit/start", strings.ReplaceAll(start, "ROOT", m.root))
	m.file("/unit/localtime", "")
	m.hasBlocks("/dev/sdb", "NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"\" LABEL=\"\"\n")
	m.answers["mkfs.ext4 -L data -F /dev/sdb"] = ""
	m.answers["systemctl show --property=UnitFileState --value old.service"] = "enabled\n"
	m.answers["systemctl show --property=ActiveState --value docker.service"] = "active\n"
	m.answers["systemctl show --property=LoadState --value gone.service"] = "not-found\n"
	m.answers["systemctl disable --now gone.service"] = "FAIL"
	err := errors.Join(
		os.WriteFile(filepath.Join(m.op, "host"), []byte(m.root), 0o600),
		os.Symlink("/usr/share/before", m.realPath("etc/localtime")),
	)
	if err != nil {
		m.t.Fatal(err)
	}
	c, _, err := parser.Parse([]byte(text), bootstrapdata.FormatIgnition, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

const succeed = "echo run >> ROOT/count; mkdir -p ROOT/run/cluster-api; touch ROOT/run/cluster-api/bootstrap-success.complete\n"

func TestIgnitionKilledAnywhere(t *testing.T) {
	t.Parallel()
	killedAnywhere(t, func(m *machine) *bootstrapdata.Config { return ignite(m, ignited, succeed) })
}

func TestIgnition(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	warnings, _, err := m.apply(t.Context(), ignite(m, ignited, succeed))
	if err != nil || len(warnings) != 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	for path, want := range map[string]string{
		"/count":                          "run\n",
		"/etc/motd":                       "welcome\nappended\n",
		"/etc/hostname":                   "after\n",
		"/proc/sys/kernel/hostname":       "after\n",
		"/etc/shadow":                     "root:*:1\nold:$6$a$b:1\nkube:$6$x$y:1\n",
		"/home/kube/.ssh/authorized_keys": "key-1\n",
		"/etc/systemd/system/up.service":  "[Service]\nExecStart=/opt/bin/up\n",
		"/opt/hard":                       "touch /run/cluster-api/bootstrap-success.complete",
		"/run/systemd/system/elemental-bootstrap.target": "[Unit]\nDescription=Units of the bootstrap data\nWants=up.service image.service\nAfter=up.service image.service\n",
	} {
		if got := m.read(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{"/etc/deep": "0:0", "/etc/deep/er": "1500:0", "/opt/bin/up": "7:0"} {
		if got := m.owner(path); got != want {
			t.Errorf("the owner of %s is %s, want %s", path, got, want)
		}
	}
	for path, want := range map[string]string{"/etc/localtime": "/usr/share/utc", "/etc/fstab": "/dev/null", "/etc/systemd/system/bad.service": "/dev/null"} {
		if got, err := os.Readlink(m.realPath(path)); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	// Units are enabled last. After an earlier power cut the boot does not start them.
	want := []string{
		"apply /etc/sysctl.d/", "elemental-bootstrap.target", "unit up.service", "unit old.service", "unit bad.service", "unit docker.service", "unit image.service", "unit gone.service",
		"units reload", "restart up.service", "disable old.service", "stop bad.service", "restart docker.service", "disable gone.service", "units", "enable units",
	}
	if steps := m.observed[len(m.observed)-len(want):]; !reflect.DeepEqual(steps, want) {
		t.Errorf("got  %q\nwant %q", steps, want)
	}
	touched := []journal.TouchedUnit{{Name: "up.service"}, {Name: "old.service", Enabled: true}, {Name: "bad.service"}, {Name: "docker.service", Active: true}, {Name: "image.service"}, {Name: "gone.service"}}
	if got := m.manifest().Units; !reflect.DeepEqual(got, touched) {
		t.Errorf("got %+v", got)
	}
	m.commands = nil
	m.answers["systemctl show --property=UnitFileState --value up.service"] = "enabled\n"
	m.answers["systemctl show --property=ActiveState --value up.service"] = "failed\n"
	m.answers["systemctl show --property=LoadState --value bad.service"] = "not-found\n"
	if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, c := range m.commands {
		if c[0] == "systemctl" && c[1] != "show" {
			done = append(done, strings.Join(c[1:], " "))
		}
	}
	if want := []string{
		"stop image.service", "stop old.service", "stop up.service", "reset-failed up.service", "disable up.service",
		"daemon-reload", "enable old.service", "start docker.service", "reload-or-restart docker.service",
	}; !reflect.DeepEqual(done, want) {
		t.Errorf("got  %q\nwant %q", done, want)
	}
}

func TestIgnitionSuccessOfUnits(t *testing.T) {
	t.Parallel()
	const unit = `{"ignition": {"version": "3.4.0"}, "systemd": {"units": [{"name": "up.service", "enabled": true, "contents": "[Service]\n# SENTINEL\n"}]}}`
	for name, c := range map[string]struct {
		reports             bool
		start, end, failure string
		warnings            int
	}{
		"started":              {false, "", "", "", 0},
		"failed":               {false, "touch ROOT/unit/failed", "", "status 1", 0},
		"wrote success":        {true, succeed, "", "", 0},
		"failed after success": {true, succeed + "touch ROOT/unit/failed", "", "", 1},
		"wrote nothing":        {true, "", "", "did not write /run/cluster-api", 0},
		"runs for some time":   {true, "touch ROOT/unit/busy", succeed, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			text := unit
			if c.reports {
				text = strings.Replace(unit, "SENTINEL", bootstrapdata.SentinelPath, 1)
			}
			config := ignite(m, text, c.start)
			m.file("/unit/end", strings.ReplaceAll(c.end, "ROOT", m.root))
			m.file("/run/cluster-api/bootstrap-success.complete", "of an earlier bootstrap")
			warnings, _, err := m.apply(t.Context(), config)
			var failed *apply.Failure
			if errors.As(err, &failed) != (c.failure != "") || failed != nil && !strings.Contains(failed.Reason, c.failure) {
				t.Fatalf("got %v, want the failure %q", err, c.failure)
			}
			if len(warnings) != c.warnings {
				t.Errorf("got warnings %q", warnings)
			}
			if name == "failed" && failed.Output != "up.service failed:\njournal: kubeadm join --token [redacted] failed" {
				t.Errorf("got the output %q", failed.Output)
			}
		})
	}
}

// The check finds files that would be lost and errors of later steps before anything on
// the host changes.
func TestIgnitionCheckChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"file exists":         {`"storage": {"files": [{"path": "/etc/motd", "contents": {"source": "data:,"}}]}`, `"overwrite" is not set`},
		"file is a link":      {`"storage": {"files": [{"path": "/etc/localtime", "overwrite": true, "contents": {"source": "data:,"}}]}`, "is a symbolic link"},
		"link exists":         {`"storage": {"links": [{"path": "/etc/motd", "target": "/a"}]}`, `"overwrite" is not set`},
		"link is a directory": {`"storage": {"links": [{"path": "/etc", "target": "/a", "overwrite": true}]}`, "it is a directory"},
		"directory is a file": {`"storage": {"directories": [{"path": "/etc/motd"}]}`, "there is a file"},
		"directory not empty": {`"storage": {"directories": [{"path": "/etc", "overwrite": true}]}`, "not removed on a running system"},
		"unknown user":        {`"storage": {"directories": [{"path": "/a", "user": {"name": "nobody"}}]}`, `no user "nobody"`},
		"unknown group":       {`"storage": {"directories": [{"path": "/a", "group": {"name": "nogroup"}}]}`, `no group "nogroup"`},
		"unknown file owner":  {`"storage": {"files": [{"path": "/a", "user": {"name": "nobody"}}]}`, "make it with the document"},
		"user exists":         {`"passwd": {"users": [{"name": "old", "shell": "/bin/zsh"}]}`, "user old exists"},
		"unknown user group":  {`"passwd": {"users": [{"name": "kube", "groups": ["kubes"]}]}`, `no group "kubes"`},
		"unknown unit":        {`"systemd": {"units": [{"name": "ntpd.service", "enabled": true}]}`, "is not-found on this host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			config := ignite(m, `{"ignition": {"version": "3.4.0"}, `+c.in+`}`, "")
			m.answers["systemctl show --property=LoadState --value ntpd.service"] = "not-found\n"
			before := m.tree()
			var failed *apply.Failure
			if _, _, err := m.apply(t.Context(), config); !errors.As(err, &failed) || failed.Step != "check" || !strings.Contains(failed.Reason, c.want) {
				t.Errorf("got %v, want the failure %q of the check", err, c.want)
			}
			compare(t, m.tree(), before)
		})
	}
}

// A file system is made on an empty device only. No data is wiped.
func TestIgnitionFilesystem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blocks, failure string
		made            bool
	}{
		"empty":          {"NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"\" LABEL=\"\"\n", "", true},
		"exists":         {"NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"ext4\" LABEL=\"data\"\n", "", false},
		"other type":     {"NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"xfs\" LABEL=\"data\"\n", "nothing is wiped", false},
		"other label":    {"NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"ext4\" LABEL=\"x\"\n", "nothing is wiped", false},
		"has partitions": {"NAME=\"/dev/sdb\" TYPE=\"disk\" FSTYPE=\"\" LABEL=\"\"\nNAME=\"/dev/sdb1\" TYPE=\"part\" FSTYPE=\"\" LABEL=\"\"\n", "has partitions", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			config := ignite(m, `{"ignition": {"version": "3.4.0"}, "storage": {"filesystems": [{"device": "/dev/sdb", "format": "ext4", "label": "data", "uuid": "u-1"}]}}`, "")
			m.hasBlocks("/dev/sdb", c.blocks)
			const mkfs = "mkfs.ext4 -L data -U u-1 -F /dev/sdb"
			m.answers[mkfs] = ""
			var failed *apply.Failure
			if _, _, err := m.apply(t.Context(), config); errors.As(err, &failed) != (c.failure != "") || failed != nil && !strings.Contains(failed.Reason, c.failure) {
				t.Errorf("got %v, want the failure %q", err, c.failure)
			}
			if _, made := m.stdin[mkfs]; made != c.made {
				t.Errorf("mkfs was called: %v, want %v", made, c.made)
			}
		})
	}
}

func TestAbortKillsUnits(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.answers["systemctl show --property=ActiveState --value up.service"] = "activating\n"
	m.answers["systemctl show --property=ActiveState --value over.service"] = "inactive\n"
	p := journal.Progress{Manifest: journal.Manifest{Units: []journal.TouchedUnit{{Name: "up.service"}, {Name: "over.service"}, {Name: "docker.service", Active: true}}}}
	if err := apply.Abort(t.Context(), p, m.options()); err != nil || len(m.commands) != 0 {
		t.Errorf("aborting before units start: error %v, commands %q", err, m.commands)
	}
	p.Current = &journal.Intent{Step: "units"}
	if err := apply.Abort(t.Context(), p, m.options()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(m.commands[1], " "); len(m.commands) != 3 || got != "systemctl kill --signal=SIGKILL up.service" {
		t.Errorf("got %q", m.commands)
	}
}
