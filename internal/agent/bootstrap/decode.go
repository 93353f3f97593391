package bootstrap

import (
	"fmt"
	"path"
	"strings"
)

// Limits of one document; CAPI's largest stay far below them.
const (
	maxFiles    = 4096
	maxCommands = 4096
	maxEntries  = 256
)

// decoder turns YAML into a Config. After the first error it only goes on to
// keep its callers simple; the Config is thrown away then.
type decoder struct {
	// offset is how many lines were cut off before the YAML text began, and
	// rendered is true when lines moved by more than that.
	offset   int
	rendered bool
	warnings []Warning
	err      error
}

func (d *decoder) fail(line int, format string, args ...any) {
	if d.err == nil {
		d.err = failure(line, format, args...)
	}
}

// warn records a warning; line 0 means no line.
func (d *decoder) warn(line int, format string, args ...any) {
	w := Warning{Line: line, Rendered: d.rendered, Text: fmt.Sprintf(format, args...)}
	if line > 0 && !d.rendered {
		w.Line += d.offset
	}
	d.warnings = append(d.warnings, w)
}

// config decodes a whole document.
func (d *decoder) config(root *value) (*Config, error) {
	c := &Config{}
	aliases := map[string]string{}
	if v := root.get("device_aliases"); v != nil {
		for _, f := range d.mapping(v, "device_aliases") {
			aliases[f.name] = d.text(f.value, "device_aliases."+f.name)
		}
	}
	var mountDefaults *value
	for _, f := range root.fields {
		v := f.value
		switch f.name {
		case "bootcmd":
			c.BootCommands = d.commands(v, f.name)
		case "write_files":
			c.Files = d.files(v)
		case "disk_setup":
			c.Disks = d.disks(v, aliases)
		case "fs_setup":
			c.Filesystems = d.filesystems(v, aliases)
		case "mounts":
			mountDefaults = root.get("mount_default_fields")
			c.Mounts = d.mounts(v, mountDefaults, aliases)
		case "groups":
			c.Groups = d.groups(v)
		case "users":
			c.Users = d.users(v)
		case "ntp":
			c.NTP = d.ntp(v)
		case "runcmd":
			c.Commands = d.commands(v, f.name)
		case "device_aliases", "mount_default_fields", "hostname", "fqdn", "preserve_hostname", "prefer_fqdn_over_hostname":
			// read together with the keys that they belong to
		default:
			d.unknown(f)
		}
	}
	c.HostName = d.hostName(root)
	c.Sentinel = sentinel(c)
	if d.err != nil {
		return nil, d.err
	}
	return c, nil
}

func (d *decoder) unknown(f field) {
	if cloudInitKeys()[f.name] {
		d.warn(f.line, "%q is a key of cloud-init that this agent does not execute", f.name)
		return
	}
	d.warn(f.line, "unknown key %q", f.name)
}

// cloudInitKeys are top-level keys of cloud-init that have no effect here, so
// that a warning can tell them from a typing error.
func cloudInitKeys() map[string]bool {
	keys := map[string]bool{}
	for name := range strings.FieldsSeq(`apk_repos apt apt_pipelining bootcmd byobu_by_default ca_certs ca-certs
		chef chpasswd datasource_list disable_ec2_metadata disable_root drivers fan final_message growpart
		grub_dpkg keyboard landscape locale locale_configfile lxd manage_etc_hosts manage_resolv_conf mcollective
		merge_how merge_type network no_ssh_fingerprints output packages package_reboot_if_required package_update
		package_upgrade password phone_home power_state puppet random_seed repo_upgrade resize_rootfs resolv_conf
		rh_subscription rsyslog salt_minion snap spacewalk ssh ssh_authorized_keys ssh_deletekeys
		ssh_fp_console_blacklist ssh_genkeytypes ssh_import_id ssh_key_console_blacklist ssh_keys
		ssh_publish_hostkeys ssh_pwauth ssh_quiet_keygen swap timezone ubuntu_advantage updates user vendor_data
		wireguard yum_repos zypper`) {
		keys[name] = true
	}
	return keys
}

// sentinel finds the success file where the document writes one: in its
// commands, or in a file that its commands name and may so run.
func sentinel(c *Config) string {
	bodies := []string{Script(c.Commands)}
	for _, s := range c.Scripts {
		bodies = append(bodies, s.Body)
	}
	script := strings.Join(bodies, "\n")
	if strings.Contains(script, SentinelPath) {
		return SentinelPath
	}
	for _, f := range c.Files {
		if strings.Contains(script, f.Path) && strings.Contains(string(f.Content), SentinelPath) {
			return SentinelPath
		}
	}
	return ""
}

// list returns the items of a list; nothing at all is an empty one.
func (d *decoder) list(v *value, what string, limit int) []*value {
	switch {
	case v.kind == kindNull:
		return nil
	case v.kind != kindList:
		d.fail(v.line, "%s is %s, not a list", what, v.kind)
	case len(v.items) > limit:
		d.fail(v.line, "%s has %d entries, more than the %d allowed", what, len(v.items), limit)
	default:
		return v.items
	}
	return nil
}

// mapping returns the fields of a mapping; nothing at all is an empty one.
func (d *decoder) mapping(v *value, what string) []field {
	switch {
	case v.kind == kindNull:
		return nil
	case v.kind != kindMap:
		d.fail(v.line, "%s is %s, not a mapping", what, v.kind)
	case len(v.fields) > maxEntries:
		d.fail(v.line, "%s has %d entries, more than the %d allowed", what, len(v.fields), maxEntries)
	default:
		return v.fields
	}
	return nil
}

// text returns a string and refuses every other type.
func (d *decoder) text(v *value, what string) string {
	if v.kind != kindString {
		d.fail(v.line, "%s is %s, not a string; put it in quotes", what, v.kind)
	}
	return v.text
}

// scalarText returns any scalar as Python prints it.
func (d *decoder) scalarText(v *value, what string) string {
	if v.kind == kindList || v.kind == kindMap || v.kind == kindNull {
		d.fail(v.line, "%s is %s, not a string", what, v.kind)
		return ""
	}
	return v.python()
}

// texts returns a list of scalars as Python prints them.
func (d *decoder) texts(v *value, what string) []string {
	var out []string
	for i, item := range d.list(v, what, maxEntries) {
		out = append(out, d.scalarText(item, fmt.Sprintf("%s[%d]", what, i)))
	}
	return out
}

// hostName follows cloud-init: fqdn counts before hostname, and the host gets
// the part before the first dot unless the whole name is preferred.
func (d *decoder) hostName(root *value) *HostName {
	short, full := "", ""
	for _, name := range []string{"hostname", "fqdn"} {
		v := root.get(name)
		if v == nil || v.kind == kindNull {
			continue
		}
		text := d.text(v, name)
		if len(text) > 253 || text == "" || strings.ContainsAny(text, " \t\n/\\'\"$;&|") || strings.HasPrefix(text, "-") {
			d.fail(v.line, "%s %q is not a host name", name, text)
		}
		if name == "hostname" {
			short = text
		} else {
			full = text
		}
	}
	if v := root.get("preserve_hostname"); v != nil && v.isTrue() {
		return nil
	}
	if full == "" && strings.Contains(short, ".") {
		full, short = short, ""
	}
	if short == "" {
		short, _, _ = strings.Cut(full, ".")
	}
	if v := root.get("prefer_fqdn_over_hostname"); v != nil && v.isTrue() && full != "" {
		short = full
	}
	if short == "" {
		return nil
	}
	return &HostName{Name: short}
}

// absolute cleans a path the way os.path.abspath does in cloud-init, which
// runs in "/".
func absolute(p string) string { return path.Join("/", p) }
