package cloudconfig

import (
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// groups decodes names, or mappings of a name to its members.
func (d *decoder) groups(v *document.Value) []bootstrapdata.Group {
	var out []bootstrapdata.Group
	add := func(v *document.Value, name string, members ...string) {
		name = d.AccountName(v, strings.TrimSpace(name), "groups:")
		for i := range out {
			if out[i].Name == name {
				out[i].Members = append(out[i].Members, members...)
				return
			}
		}
		out = append(out, bootstrapdata.Group{Name: name, Members: members})
	}
	addAll := func(fields []document.Field) {
		for _, f := range fields {
			members := f.Value
			if members.Kind == document.List {
				add(members, f.Name, d.ScalarTexts(members, "groups."+f.Name)...)
			} else {
				add(members, f.Name, commaList(d.Text(members, "groups."+f.Name))...)
			}
		}
	}
	switch v.Kind {
	case document.Null:
	case document.String:
		for _, name := range commaList(v.Text) {
			add(v, name)
		}
	case document.Map:
		addAll(d.Mapping(v, "groups"))
	default:
		for i, item := range d.List(v, "groups", document.MaxEntries) {
			if item.Kind == document.Map {
				addAll(item.Fields)
			} else {
				add(item, d.Text(item, fmt.Sprintf("groups[%d]", i)))
			}
		}
	}
	return out
}

func commaList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// users decodes a list of users; the older forms, a mapping by name and names
// separated by commas, mean the same.
func (d *decoder) users(v *document.Value) []bootstrapdata.User {
	entries, order := map[string]*document.Value{}, []string{}
	add := func(line int, name string, fields []document.Field) {
		if name == "default" {
			d.Warn(line, "there is no default user on this host; the entry has no effect")
			return
		}
		entry := entries[name]
		if entry == nil {
			entry = &document.Value{Kind: document.Map, Line: line}
			entries[name], order = entry, append(order, name)
		}
		for _, f := range fields {
			f.Name = strings.TrimSpace(strings.ReplaceAll(f.Name, "-", "_"))
			if entry.Get(f.Name) == nil { // the first entry of a name wins, key by key
				entry.Set(f)
			}
		}
	}
	switch v.Kind {
	case document.String:
		for _, name := range commaList(v.Text) {
			add(v.Line, name, nil)
		}
	case document.Map:
		for _, f := range d.Mapping(v, "users") {
			if f.Value.Kind == document.Map {
				add(f.Line, f.Name, f.Value.Fields)
			} else if f.Value.IsTrue() {
				add(f.Line, f.Name, nil)
			}
		}
	default:
		for i, item := range d.List(v, "users", document.MaxEntries) {
			switch item.Kind {
			case document.String:
				for _, name := range commaList(item.Text) {
					add(item.Line, name, nil)
				}
			case document.Map:
				name := item.Get("name")
				if name == nil {
					d.Fail(item.Line, "users[%d] has no name", i)
					return nil
				}
				add(item.Line, d.Text(name, fmt.Sprintf("users[%d].name", i)), item.Fields)
			default:
				d.Fail(item.Line, "users[%d] is %s, neither a name nor a mapping", i, item.Kind)
			}
		}
	}
	var out []bootstrapdata.User
	for _, name := range order {
		out = append(out, d.user(name, entries[name]))
	}
	return out
}

func (d *decoder) user(name string, v *document.Value) bootstrapdata.User {
	u := bootstrapdata.User{Name: d.AccountName(v, name, "user name"), Lock: true}
	what := "user " + name
	options := map[string]*string{
		"homedir": &u.HomeDir, "primary_group": &u.PrimaryGroup, "shell": &u.Shell,
		"expiredate": &u.ExpireDate, "selinux_user": &u.SELinuxUser, "passwd": &u.Password,
		"hashed_passwd": &u.HashedPassword, "plain_text_passwd": &u.PlainPassword,
	}
	flags := map[string]*bool{
		"system": &u.System, "no_create_home": &u.NoCreateHome, "no_user_group": &u.NoUserGroup,
		"no_log_init": &u.NoLogInit, "lock_passwd": &u.Lock,
	}
	for _, f := range v.Fields {
		key, v := what+": "+f.Name, f.Value
		option, flag := options[f.Name], flags[f.Name]
		switch {
		case option != nil:
			if v.IsTruthy() {
				*option = d.AccountField(v, key)
			}
		case flag != nil:
			*flag = v.IsTruthy()
		case f.Name == "name":
		case f.Name == "uid":
			u.UID = d.ScalarText(v, key)
		case f.Name == "gecos" || f.Name == "inactive":
			// Only a string reaches useradd: "inactive: true", which CABPK
			// writes, does nothing.
			switch {
			case v.Kind != document.String:
				d.Warn(v.Line, "%s is %s, which has no effect", key, v.Kind)
			case f.Name == "gecos":
				u.Gecos = d.AccountField(v, key)
			default:
				u.Inactive = d.AccountField(v, key)
			}
		case f.Name == "groups":
			u.Groups = d.userGroups(v, key)
		case f.Name == "create_groups":
			u.KeepGroups = !v.IsTruthy()
		case f.Name == "sudo":
			u.Sudo = d.sudo(v, key)
		case f.Name == "ssh_authorized_keys":
			u.SSHKeys = d.sshKeys(v, key)
		default:
			d.Warn(f.Line, "unknown key %q of %s", f.Name, what)
		}
	}
	if u.PrimaryGroup != "" {
		d.AccountName(v, u.PrimaryGroup, what+": primary_group")
	}
	if (u.NoCreateHome || u.System) && len(u.SSHKeys) > 0 {
		d.Fail(v.Line, "%s has ssh_authorized_keys but no home directory, because of no_create_home or system", what)
	}
	return u
}

func (d *decoder) userGroups(v *document.Value, what string) []string {
	var names []string
	switch v.Kind {
	case document.Null:
	case document.String:
		names = commaList(v.Text)
	case document.Map:
		for _, f := range v.Fields {
			names = append(names, f.Name)
		}
	default:
		names = d.ScalarTexts(v, what)
	}
	for i, name := range names {
		names[i] = d.AccountName(v, strings.TrimSpace(name), what)
	}
	return names
}

func (d *decoder) sudo(v *document.Value, what string) []string {
	var rules []string
	switch {
	case !v.IsTruthy():
	case v.Kind == document.String:
		rules = []string{v.Text}
	case v.Kind == document.List:
		rules = d.ScalarTexts(v, what)
	default:
		d.Fail(v.Line, "%s is %s, not a rule of sudoers(5)", what, v.Kind)
	}
	for _, rule := range rules {
		if strings.ContainsAny(rule, "\n\x00") {
			d.Fail(v.Line, "%s contains a line break; write a list of rules", what)
		}
	}
	return rules
}
