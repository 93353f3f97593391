package bootstrap

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func (i *ignition) passwd(v *value, what string) {
	i.object(v, what, fields{
		"groups": i.each(maxEntries, i.passwdGroup),
		"users":  i.each(maxEntries, i.passwdUser),
	})
}

// exists refuses to remove what a running system may use.
func (i *ignition) exists(v *value, what string) {
	if !i.flag(v, what) {
		i.fail(v.line, "%s: removing users and groups %s", what, notWhileRunning)
	}
}

func (i *ignition) passwdGroup(v *value, what string) {
	g := Group{}
	i.object(v, what, fields{
		"name":        func(v *value, what string) { g.Name = i.account(v, i.text(v, what), what) },
		"gid":         func(v *value, what string) { g.GID = strconv.Itoa(i.integer(v, what, 1<<32-2)) },
		"system":      func(v *value, what string) { g.System = i.flag(v, what) },
		"shouldExist": i.exists,
		"passwordHash": func(v *value, what string) {
			if i.text(v, what) != "" {
				i.fail(v.line, "%s: passwords of groups are not set", what)
			}
		},
	})
	if g.Name == "" {
		i.fail(v.line, "%s has no name", what)
	}
	i.config.Groups = append(i.config.Groups, g)
}

// passwdUser reads a user. Without a password it has none, but is not locked:
// it can log in by key.
func (i *ignition) passwdUser(v *value, what string) {
	u := User{Password: "*", KeepGroups: true, Plain: true}
	account := func(to *string) func(*value, string) {
		return func(v *value, what string) { *to = i.accountField(v, what) }
	}
	flag := func(to *bool) func(*value, string) {
		return func(v *value, what string) { *to = i.flag(v, what) }
	}
	known := fields{
		"name":         func(v *value, what string) { u.Name = i.account(v, i.text(v, what), what) },
		"gecos":        account(&u.Gecos),
		"homeDir":      account(&u.HomeDir),
		"shell":        account(&u.Shell),
		"noCreateHome": flag(&u.NoCreateHome),
		"noUserGroup":  flag(&u.NoUserGroup),
		"noLogInit":    flag(&u.NoLogInit),
		"system":       flag(&u.System),
		"shouldExist":  i.exists,
		"uid":          func(v *value, what string) { u.UID = strconv.Itoa(i.integer(v, what, 1<<32-2)) },
		"passwordHash": func(v *value, what string) {
			if u.HashedPassword = i.accountField(v, what); u.HashedPassword == "" {
				u.HashedPassword = "*"
			}
		},
		"primaryGroup": func(v *value, what string) {
			if u.PrimaryGroup = i.text(v, what); u.PrimaryGroup != "" {
				i.account(v, u.PrimaryGroup, what)
			}
		},
		"groups": func(v *value, what string) {
			for _, name := range i.strings(v, what) {
				u.Groups = append(u.Groups, i.account(v, strings.TrimSpace(name), what))
			}
		},
		"sshAuthorizedKeys": func(v *value, what string) { u.SSHKeys = i.sshKeys(v, what) },
	}
	if i.major == 2 {
		known["create"] = i.refused("is of version 1; write its fields into the user")
	}
	i.object(v, what, known)
	if u.Name == "" {
		i.fail(v.line, "%s has no name", what)
	}
	if u.NoCreateHome && len(u.SSHKeys) > 0 {
		i.fail(v.line, "%s has sshAuthorizedKeys but no home directory, because of noCreateHome", what)
	}
	i.config.Users = append(i.config.Users, u)
}

// unitName and dropinName are what systemd.unit(5) allows.
var (
	unitName   = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,240}\.(?:service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)
	dropinName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,240}\.conf$`)
)

func (i *ignition) systemd(v *value, what string) {
	i.object(v, what, fields{"units": i.each(maxEntries, i.unit)})
}

func (i *ignition) unit(v *value, what string) {
	u := Unit{}
	contents := ""
	var dropins []File
	known := fields{
		"name": func(v *value, what string) {
			if u.Name = i.text(v, what); !unitName.MatchString(u.Name) || strings.HasPrefix(u.Name, "-") {
				i.fail(v.line, "%s %q is not the name of a systemd unit", what, u.Name)
			}
		},
		"contents": func(v *value, what string) { contents = i.text(v, what) },
		"enabled": func(v *value, what string) {
			u.Enable = i.flag(v, what)
			u.Disable = !u.Enable
		},
		"mask": func(v *value, what string) {
			if u.Mask = i.flag(v, what); !u.Mask && i.major == 3 {
				i.warn(v.line, "%s is false, which does not unmask a unit that is masked", what)
			}
		},
		"dropins": i.each(maxEntries, func(item *value, what string) {
			name, text := i.dropin(item, what)
			if unit := v.get("name"); unit != nil && text != "" {
				dropins = append(dropins, dropinFile(unit.text, name, text))
			}
		}),
	}
	if i.major == 2 {
		known["enable"] = func(v *value, what string) { u.Enable = u.Enable || i.flag(v, what) }
	}
	i.object(v, what, known)
	if i.err != nil || !i.sensible(v, what, u, contents) {
		return
	}
	u.Changed = contents != "" || len(dropins) > 0
	if contents != "" {
		u.Given = true
		i.add(unitFile(u.Name, contents))
	}
	for _, f := range dropins {
		i.add(f)
	}
	if u.Mask {
		i.config.Links = append(i.config.Links, Link{Path: unitDir + u.Name, Target: "/dev/null", Overwrite: true})
	}
	i.merge(u)
}

// dropin reads the name and the text of a drop-in.
func (i *ignition) dropin(v *value, what string) (name, text string) {
	i.object(v, what, fields{
		"name": func(v *value, what string) {
			if name = i.text(v, what); !dropinName.MatchString(name) {
				i.fail(v.line, "%s %q is not the name of a drop-in; it ends in .conf", what, name)
			}
		},
		"contents": func(v *value, what string) { text = i.text(v, what) },
	})
	if name == "" {
		i.fail(v.line, "%s has no name", what)
	}
	return name, text
}

// sensible checks what a unit says as a whole.
func (i *ignition) sensible(v *value, what string, u Unit, contents string) bool {
	switch {
	case u.Name == "":
		i.fail(v.line, "%s has no name", what)
	case u.Mask && (contents != "" || u.Enable):
		i.fail(v.line, "%s: a unit that is masked can neither have contents nor be enabled", what)
	case contents != "" && !strings.Contains(contents, "["):
		i.fail(v.line, "%s.contents has no section, so it is no unit", what)
	}
	return i.err == nil
}

// merge adds a unit to what another entry says about it, as 2.x allows.
func (i *ignition) merge(u Unit) {
	at := slices.IndexFunc(i.config.Units, func(have Unit) bool { return have.Name == u.Name })
	if at < 0 {
		i.config.Units = append(i.config.Units, u)
		return
	}
	have := &i.config.Units[at]
	if u.Enable || u.Disable {
		have.Enable, have.Disable = u.Enable, u.Disable
	}
	have.Mask, have.Given, have.Changed = have.Mask || u.Mask, have.Given || u.Given, have.Changed || u.Changed
}
