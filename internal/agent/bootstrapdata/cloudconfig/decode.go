package cloudconfig

import (
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// decoder turns cloud-config into a Config.
type decoder struct{ *document.Decoder }

// config decodes a whole document.
func (d *decoder) config(root *document.Value) (*bootstrapdata.Config, error) {
	c := &bootstrapdata.Config{}
	aliases := map[string]string{}
	if v := root.Get("device_aliases"); v != nil {
		for _, f := range d.Mapping(v, "device_aliases") {
			aliases[f.Name] = d.Text(f.Value, "device_aliases."+f.Name)
		}
	}
	var mountDefaults *document.Value
	for _, f := range root.Fields {
		v := f.Value
		switch f.Name {
		case "bootcmd":
			c.BootCommands = d.commands(v, f.Name)
		case "write_files":
			c.Files = d.files(v)
		case "disk_setup":
			c.Disks = d.disks(v, aliases)
		case "fs_setup":
			c.Filesystems = d.filesystems(v, aliases)
		case "mounts":
			mountDefaults = root.Get("mount_default_fields")
			c.Mounts = d.mounts(v, mountDefaults, aliases)
		case "groups":
			c.Groups = d.groups(v)
		case "users":
			c.Users = d.users(v)
		case "chpasswd":
			c.Passwords = d.passwords(v)
		case "ssh_authorized_keys":
			c.RootSSHKeys = d.rootKeys(root, v)
		case "ntp":
			c.NTP = d.ntp(v)
		case "runcmd":
			c.Commands = d.commands(v, f.Name)
		case "device_aliases", "disable_root", "mount_default_fields", "hostname", "fqdn", "preserve_hostname", "prefer_fqdn_over_hostname":
			// Read together with the keys to which they belong.
		default:
			d.unknown(f)
		}
	}
	c.HostName = d.hostName(root)
	c.Sentinel = sentinel(c)
	if d.Err != nil {
		return nil, d.Err
	}
	return c, nil
}

func (d *decoder) unknown(f document.Field) {
	if cloudInitKeys()[f.Name] {
		d.Warn(f.Line, "%q is a key of cloud-init that this agent does not execute", f.Name)
		return
	}
	d.Warn(f.Line, "unknown key %q", f.Name)
}

// cloudInitKeys returns the top-level keys of cloud-init that have no effect here.
// Their warnings differ from the warnings about typing errors.
func cloudInitKeys() map[string]bool {
	keys := map[string]bool{}
	for name := range strings.FieldsSeq(`apk_repos apt apt_pipelining bootcmd byobu_by_default ca_certs ca-certs
		chef datasource_list disable_ec2_metadata drivers fan final_message growpart
		grub_dpkg keyboard landscape locale locale_configfile lxd manage_etc_hosts manage_resolv_conf mcollective
		merge_how merge_type network no_ssh_fingerprints output packages package_reboot_if_required package_update
		package_upgrade password phone_home power_state puppet random_seed repo_upgrade resize_rootfs resolv_conf
		rh_subscription rsyslog salt_minion snap spacewalk ssh ssh_deletekeys
		ssh_fp_console_blacklist ssh_genkeytypes ssh_import_id ssh_key_console_blacklist ssh_keys
		ssh_publish_hostkeys ssh_pwauth ssh_quiet_keygen swap timezone ubuntu_advantage updates user vendor_data
		wireguard yum_repos zypper`) {
		keys[name] = true
	}
	return keys
}

// sentinel returns the path of the success file if the document writes it: in its
// commands, or in a file that its commands name and may execute.
func sentinel(c *bootstrapdata.Config) string {
	bodies := []string{bootstrapdata.Script(c.Commands)}
	for _, s := range c.Scripts {
		bodies = append(bodies, s.Body)
	}
	script := strings.Join(bodies, "\n")
	if strings.Contains(script, bootstrapdata.SentinelPath) {
		return bootstrapdata.SentinelPath
	}
	for _, f := range c.Files {
		if strings.Contains(script, f.Path) && strings.Contains(string(f.Content), bootstrapdata.SentinelPath) {
			return bootstrapdata.SentinelPath
		}
	}
	return ""
}

// hostName follows cloud-init: fqdn takes precedence over hostname, and the host
// name ends before the first dot unless the document prefers the whole name.
func (d *decoder) hostName(root *document.Value) *bootstrapdata.HostName {
	short, full := "", ""
	for _, name := range []string{"hostname", "fqdn"} {
		v := root.Get(name)
		if v == nil || v.Kind == document.Null {
			continue
		}
		text := d.Text(v, name)
		if len(text) > 253 || text == "" || strings.ContainsAny(text, " \t\n/\\'\"$;&|") || strings.HasPrefix(text, "-") {
			d.Fail(v.Line, "%s %q is not a host name", name, text)
		}
		if name == "hostname" {
			short = text
		} else {
			full = text
		}
	}
	if v := root.Get("preserve_hostname"); v != nil && v.IsTrue() {
		return nil
	}
	if full == "" && strings.Contains(short, ".") {
		full, short = short, ""
	}
	if short == "" {
		short, _, _ = strings.Cut(full, ".")
	}
	if v := root.Get("prefer_fqdn_over_hostname"); v != nil && v.IsTrue() && full != "" {
		short = full
	}
	if short == "" {
		return nil
	}
	return &bootstrapdata.HostName{Name: short}
}
