package bootstrap

import (
	"fmt"
	"regexp"
	"strings"
)

// accountName is what useradd and groupadd of common distributions accept;
// most of all, nothing that could be taken for an option or break passwd(5).
var accountName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,31}\$?$`)

func (d *decoder) account(v *value, name, what string) string {
	if !accountName.MatchString(name) {
		d.fail(v.line, "%s %q is not a name for a user or group", what, name)
	}
	return name
}

// groups decodes names, or mappings of a name to its members.
func (d *decoder) groups(v *value) []Group {
	var out []Group
	add := func(v *value, name string, members ...string) {
		name = d.account(v, strings.TrimSpace(name), "groups:")
		for i := range out {
			if out[i].Name == name {
				out[i].Members = append(out[i].Members, members...)
				return
			}
		}
		out = append(out, Group{Name: name, Members: members})
	}
	addAll := func(fields []field) {
		for _, f := range fields {
			members := f.value
			if members.kind == kindList {
				add(members, f.name, d.texts(members, "groups."+f.name)...)
			} else {
				add(members, f.name, commaList(d.text(members, "groups."+f.name))...)
			}
		}
	}
	switch v.kind {
	case kindNull:
	case kindString:
		for _, name := range commaList(v.text) {
			add(v, name)
		}
	case kindMap:
		addAll(d.mapping(v, "groups"))
	default:
		for i, item := range d.list(v, "groups", maxEntries) {
			if item.kind == kindMap {
				addAll(item.fields)
			} else {
				add(item, d.text(item, fmt.Sprintf("groups[%d]", i)))
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
func (d *decoder) users(v *value) []User {
	entries, order := map[string]*value{}, []string{}
	add := func(line int, name string, fields []field) {
		if name == "default" {
			d.warn(line, "there is no default user on this host; the entry has no effect")
			return
		}
		entry := entries[name]
		if entry == nil {
			entry = &value{kind: kindMap, line: line}
			entries[name], order = entry, append(order, name)
		}
		for _, f := range fields {
			f.name = strings.TrimSpace(strings.ReplaceAll(f.name, "-", "_"))
			if entry.get(f.name) == nil { // the first entry of a name wins, key by key
				entry.set(f)
			}
		}
	}
	switch v.kind {
	case kindString:
		for _, name := range commaList(v.text) {
			add(v.line, name, nil)
		}
	case kindMap:
		for _, f := range d.mapping(v, "users") {
			if f.value.kind == kindMap {
				add(f.line, f.name, f.value.fields)
			} else if f.value.isTrue() {
				add(f.line, f.name, nil)
			}
		}
	default:
		for i, item := range d.list(v, "users", maxEntries) {
			switch item.kind {
			case kindString:
				for _, name := range commaList(item.text) {
					add(item.line, name, nil)
				}
			case kindMap:
				name := item.get("name")
				if name == nil {
					d.fail(item.line, "users[%d] has no name", i)
					return nil
				}
				add(item.line, d.text(name, fmt.Sprintf("users[%d].name", i)), item.fields)
			default:
				d.fail(item.line, "users[%d] is %s, neither a name nor a mapping", i, item.kind)
			}
		}
	}
	var out []User
	for _, name := range order {
		out = append(out, d.user(name, entries[name]))
	}
	return out
}

func (d *decoder) user(name string, v *value) User {
	u := User{Name: d.account(v, name, "user name"), Lock: true}
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
	for _, f := range v.fields {
		key, v := what+": "+f.name, f.value
		option, flag := options[f.name], flags[f.name]
		switch {
		case option != nil:
			if v.truthy() {
				*option = d.accountField(v, key)
			}
		case flag != nil:
			*flag = v.truthy()
		case f.name == "name":
		case f.name == "uid":
			u.UID = d.scalarText(v, key)
		case f.name == "gecos" || f.name == "inactive":
			// Only a string reaches useradd: "inactive: true", which CABPK
			// writes, does nothing.
			switch {
			case v.kind != kindString:
				d.warn(v.line, "%s is %s, which has no effect", key, v.kind)
			case f.name == "gecos":
				u.Gecos = d.accountField(v, key)
			default:
				u.Inactive = d.accountField(v, key)
			}
		case f.name == "groups":
			u.Groups = d.userGroups(v, key)
		case f.name == "create_groups":
			u.KeepGroups = !v.truthy()
		case f.name == "sudo":
			u.Sudo = d.sudo(v, key)
		case f.name == "ssh_authorized_keys":
			u.SSHKeys = d.sshKeys(v, key)
		default:
			d.warn(f.line, "unknown key %q of %s", f.name, what)
		}
	}
	if u.PrimaryGroup != "" {
		d.account(v, u.PrimaryGroup, what+": primary_group")
	}
	if (u.NoCreateHome || u.System) && len(u.SSHKeys) > 0 {
		d.fail(v.line, "%s has ssh_authorized_keys but no home directory, because of no_create_home or system", what)
	}
	return u
}

// accountField is a string that may stand in passwd(5) or shadow(5).
func (d *decoder) accountField(v *value, what string) string {
	text := d.text(v, what)
	if strings.ContainsAny(text, "\n\r\x00") || strings.Contains(text, ":") && !strings.HasSuffix(what, "plain_text_passwd") {
		d.fail(v.line, "%s contains a colon or a line break", what)
	}
	return text
}

func (d *decoder) userGroups(v *value, what string) []string {
	var names []string
	switch v.kind {
	case kindNull:
	case kindString:
		names = commaList(v.text)
	case kindMap:
		for _, f := range v.fields {
			names = append(names, f.name)
		}
	default:
		names = d.texts(v, what)
	}
	for i, name := range names {
		names[i] = d.account(v, strings.TrimSpace(name), what)
	}
	return names
}

func (d *decoder) sudo(v *value, what string) []string {
	var rules []string
	switch {
	case !v.truthy():
	case v.kind == kindString:
		rules = []string{v.text}
	case v.kind == kindList:
		rules = d.texts(v, what)
	default:
		d.fail(v.line, "%s is %s, not a rule of sudoers(5)", what, v.kind)
	}
	for _, rule := range rules {
		if strings.ContainsAny(rule, "\n\x00") {
			d.fail(v.line, "%s contains a line break; write a list of rules", what)
		}
	}
	return rules
}

func (d *decoder) sshKeys(v *value, what string) []string {
	var all []string
	switch v.kind {
	case kindNull:
	case kindString:
		all = strings.Split(v.text, "\n")
	case kindMap:
		for _, f := range v.fields {
			all = append(all, d.text(f.value, what))
		}
	default:
		all = d.texts(v, what)
	}
	var keys []string
	seen := map[string]bool{}
	for _, key := range all {
		if key = strings.TrimSpace(key); key != "" && !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
		if strings.ContainsAny(key, "\n\x00") {
			d.fail(v.line, "%s contains a line break within a key", what)
		}
	}
	return keys
}
