package bootstrap

import (
	"regexp"
	"strconv"
	"strings"
)

var hostForm = regexp.MustCompile(`^[A-Za-z0-9_.:%-]+$`)

// ntp decodes the time service. Enabled without a server it uses the public
// pool, as cloud-init does.
func (d *decoder) ntp(v *value) *NTP {
	n := &NTP{Client: "auto"}
	enabled := true
	for _, f := range d.mapping(v, "ntp") {
		switch f.name {
		case "enabled":
			enabled = !isFalse(f.value)
		case "servers":
			n.Servers = d.timeServers(f.value, "ntp.servers")
		case "pools":
			n.Pools = d.timeServers(f.value, "ntp.pools")
		case "ntp_client":
			if f.value.truthy() {
				n.Client = d.text(f.value, "ntp.ntp_client")
			}
			switch n.Client {
			case "auto", "chrony", "systemd-timesyncd", "ntp":
			default:
				d.fail(f.value.line, "ntp.ntp_client %q is unknown; known are auto, chrony, systemd-timesyncd and ntp", n.Client)
			}
		default:
			d.warn(f.line, "unknown key %q of ntp", f.name)
		}
	}
	if !enabled {
		return nil
	}
	if len(n.Servers) == 0 && len(n.Pools) == 0 {
		for i := range 4 {
			n.Pools = append(n.Pools, strconv.Itoa(i)+".pool.ntp.org")
		}
	}
	return n
}

func (d *decoder) timeServers(v *value, what string) []string {
	servers := d.texts(v, what)
	for _, s := range servers {
		if !hostForm.MatchString(s) {
			d.fail(v.line, "%s: %q is neither a host name nor an address", what, s)
		}
	}
	return servers
}

// isFalse is cloud-init's reading of an option that is on unless switched off.
func isFalse(v *value) bool {
	if v.kind == kindBool {
		return !v.truth
	}
	switch strings.ToLower(strings.TrimSpace(v.python())) {
	case "off", "0", "no", "false":
		return true
	}
	return false
}
