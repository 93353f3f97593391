package ignition

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

func (d *decoder) passwd(v *document.Value, what string) {
	d.Object(v, what, document.Keys{
		"groups": d.each(document.MaxEntries, d.passwdGroup),
		"users":  d.each(document.MaxEntries, d.passwdUser),
	})
}

// refuseRemoval fails if a user or group is to be removed, because a running system may
// use it.
func (d *decoder) refuseRemoval(v *document.Value, what string) {
	if !d.Flag(v, what) {
		d.Fail(v.Line, "%s: removing users and groups %s", what, notWhileRunning)
	}
}

func (d *decoder) passwdGroup(v *document.Value, what string) {
	g := bootstrapdata.Group{}
	d.Object(v, what, document.Keys{
		"name":        func(v *document.Value, what string) { g.Name = d.AccountName(v, d.Text(v, what), what) },
		"gid":         func(v *document.Value, what string) { g.GID = strconv.Itoa(d.Integer(v, what, 1<<32-2)) },
		"system":      func(v *document.Value, what string) { g.System = d.Flag(v, what) },
		"shouldExist": d.refuseRemoval,
		"passwordHash": func(v *document.Value, what string) {
			if d.Text(v, what) != "" {
				d.Fail(v.Line, "%s: passwords of groups are not set", what)
			}
		},
	})
	if g.Name == "" {
		d.Fail(v.Line, "%s has no name", what)
	}
	d.config.Groups = append(d.config.Groups, g)
}

// passwdUser reads a user. A user without a password is not locked and can log in
// by SSH key.
func (d *decoder) passwdUser(v *document.Value, what string) {
	u := bootstrapdata.User{Password: "*", KeepGroups: true, Plain: true}
	account := func(to *string) func(*document.Value, string) {
		return func(v *document.Value, what string) { *to = d.AccountField(v, what) }
	}
	flag := func(to *bool) func(*document.Value, string) {
		return func(v *document.Value, what string) { *to = d.Flag(v, what) }
	}
	known := document.Keys{
		"name":         func(v *document.Value, what string) { u.Name = d.AccountName(v, d.Text(v, what), what) },
		"gecos":        account(&u.Gecos),
		"homeDir":      account(&u.HomeDir),
		"shell":        account(&u.Shell),
		"noCreateHome": flag(&u.NoCreateHome),
		"noUserGroup":  flag(&u.NoUserGroup),
		"noLogInit":    flag(&u.NoLogInit),
		"system":       flag(&u.System),
		"shouldExist":  d.refuseRemoval,
		"uid":          func(v *document.Value, what string) { u.UID = strconv.Itoa(d.Integer(v, what, 1<<32-2)) },
		"passwordHash": func(v *document.Value, what string) {
			if u.HashedPassword = d.AccountField(v, what); u.HashedPassword == "" {
				u.HashedPassword = "*"
			}
		},
		"primaryGroup": func(v *document.Value, what string) {
			if u.PrimaryGroup = d.Text(v, what); u.PrimaryGroup != "" {
				d.AccountName(v, u.PrimaryGroup, what)
			}
		},
		"groups": func(v *document.Value, what string) {
			for _, name := range d.Strings(v, what) {
				u.Groups = append(u.Groups, d.AccountName(v, strings.TrimSpace(name), what))
			}
		},
		"sshAuthorizedKeys": func(v *document.Value, what string) { u.SSHKeys = d.SSHKeys(v, what) },
	}
	if d.major == 2 {
		known["create"] = d.refuse("is of version 1; write its fields into the user")
	}
	d.Object(v, what, known)
	if u.Name == "" {
		d.Fail(v.Line, "%s has no name", what)
	}
	if u.NoCreateHome && len(u.SSHKeys) > 0 {
		d.Fail(v.Line, "%s has sshAuthorizedKeys but no home directory, because of noCreateHome", what)
	}
	d.config.Users = append(d.config.Users, u)
}

// unitName and dropinName match the names that systemd.unit(5) allows.
var (
	unitName   = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,240}\.(?:service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)
	dropinName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,240}\.conf$`)
)

func (d *decoder) systemd(v *document.Value, what string) {
	d.Object(v, what, document.Keys{"units": d.each(document.MaxEntries, d.unit)})
}

func (d *decoder) unit(v *document.Value, what string) {
	u := bootstrapdata.Unit{}
	contents := ""
	var dropins []bootstrapdata.File
	known := document.Keys{
		"name": func(v *document.Value, what string) {
			if u.Name = d.Text(v, what); !unitName.MatchString(u.Name) || strings.HasPrefix(u.Name, "-") {
				d.Fail(v.Line, "%s %q is not the name of a systemd unit", what, u.Name)
			}
		},
		"contents": func(v *document.Value, what string) { contents = d.Text(v, what) },
		"enabled": func(v *document.Value, what string) {
			u.Enable = d.Flag(v, what)
			u.Disable = !u.Enable
		},
		"mask": func(v *document.Value, what string) {
			if u.Mask = d.Flag(v, what); !u.Mask && d.major == 3 {
				d.Warn(v.Line, "%s is false, which does not unmask a unit that is masked", what)
			}
		},
		"dropins": d.each(document.MaxEntries, func(item *document.Value, what string) {
			name, text := d.dropin(item, what)
			if unit := v.Get("name"); unit != nil && text != "" {
				dropins = append(dropins, dropinFile(unit.Text, name, text))
			}
		}),
	}
	if d.major == 2 {
		known["enable"] = func(v *document.Value, what string) { u.Enable = u.Enable || d.Flag(v, what) }
	}
	d.Object(v, what, known)
	if d.Err != nil || !d.checkUnit(v, what, u, contents) {
		return
	}
	u.Changed = contents != "" || len(dropins) > 0
	if contents != "" {
		u.Given = true
		d.addFile(unitFile(u.Name, contents))
	}
	for _, f := range dropins {
		d.addFile(f)
	}
	if u.Mask {
		d.config.Links = append(d.config.Links, bootstrapdata.Link{Path: unitDir + u.Name, Target: "/dev/null", Overwrite: true})
	}
	mergeUnit(d.config, u)
}

// dropin returns the name and the text of a drop-in.
func (d *decoder) dropin(v *document.Value, what string) (name, text string) {
	d.Object(v, what, document.Keys{
		"name": func(v *document.Value, what string) {
			if name = d.Text(v, what); !dropinName.MatchString(name) {
				d.Fail(v.Line, "%s %q is not the name of a drop-in; it ends in .conf", what, name)
			}
		},
		"contents": func(v *document.Value, what string) { text = d.Text(v, what) },
	})
	if name == "" {
		d.Fail(v.Line, "%s has no name", what)
	}
	return name, text
}

// checkUnit fails if the settings of a unit contradict each other. It reports whether
// there is no error so far.
func (d *decoder) checkUnit(v *document.Value, what string, u bootstrapdata.Unit, contents string) bool {
	switch {
	case u.Name == "":
		d.Fail(v.Line, "%s has no name", what)
	case u.Mask && (contents != "" || u.Enable):
		d.Fail(v.Line, "%s: a unit that is masked can neither have contents nor be enabled", what)
	case contents != "" && !strings.Contains(contents, "["):
		d.Fail(v.Line, "%s.contents has no section, so it is no unit", what)
	}
	return d.Err == nil
}

// mergeUnit adds a unit. Version 2.x allows several entries for a unit: later settings
// win.
func mergeUnit(c *bootstrapdata.Config, u bootstrapdata.Unit) {
	at := slices.IndexFunc(c.Units, func(have bootstrapdata.Unit) bool { return have.Name == u.Name })
	if at < 0 {
		c.Units = append(c.Units, u)
		return
	}
	have := &c.Units[at]
	if u.Enable || u.Disable {
		have.Enable, have.Disable = u.Enable, u.Disable
	}
	have.Mask, have.Given, have.Changed = have.Mask || u.Mask, have.Given || u.Given, have.Changed || u.Changed
}

// unitDir is the directory of unit files.
const unitDir = "/etc/systemd/system/"

func unitFile(name, contents string) bootstrapdata.File {
	return bootstrapdata.File{Path: unitDir + name, Content: []byte(contents), User: "root", Group: "root", Mode: bootstrapdata.DefaultFileMode, Defer: true}
}

func dropinFile(unit, name, contents string) bootstrapdata.File {
	return unitFile(fmt.Sprintf("%s.d/%s", unit, name), contents)
}
