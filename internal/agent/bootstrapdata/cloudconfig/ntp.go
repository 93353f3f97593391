package cloudconfig

import (
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// ntp decodes the time service. Without a server it uses the public pool, as
// cloud-init does.
func (d *decoder) ntp(v *document.Value) *bootstrapdata.NTP {
	n := &bootstrapdata.NTP{Client: "auto"}
	enabled := true
	for _, f := range d.Mapping(v, "ntp") {
		switch f.Name {
		case "enabled":
			enabled = !isFalse(f.Value)
		case "servers":
			n.Servers = d.timeServers(f.Value, "ntp.servers")
		case "pools":
			n.Pools = d.timeServers(f.Value, "ntp.pools")
		case "ntp_client":
			if f.Value.IsTruthy() {
				n.Client = d.Text(f.Value, "ntp.ntp_client")
			}
			switch n.Client {
			case "auto", "chrony", "systemd-timesyncd", "ntp":
			default:
				d.Fail(f.Value.Line, "ntp.ntp_client %q is unknown; known are auto, chrony, systemd-timesyncd and ntp", n.Client)
			}
		default:
			d.Warn(f.Line, "unknown key %q of ntp", f.Name)
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

func (d *decoder) timeServers(v *document.Value, what string) []string {
	servers := d.ScalarTexts(v, what)
	for _, s := range servers {
		if !document.IsHost(s) {
			d.Fail(v.Line, "%s: %q is neither a host name nor an address", what, s)
		}
	}
	return servers
}

// isFalse reports whether an option is off, in any spelling that cloud-init
// accepts.
func isFalse(v *document.Value) bool {
	if v.Kind == document.Bool {
		return !v.Bool
	}
	switch strings.ToLower(strings.TrimSpace(v.PythonString())) {
	case "off", "0", "no", "false":
		return true
	}
	return false
}
