package apply

import (
	"context"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// timeClient is an NTP client as a distribution installs it.
type timeClient struct {
	name, program string
	// where is what exists where the client is installed in this way.
	where string
	// config is its configuration and unit its systemd unit.
	config, unit string
	render       func(*bootstrap.NTP) string
}

// timeClients are in cloud-init's order of preference.
func timeClients() []timeClient {
	return []timeClient{
		{"chrony", "chronyd", "/etc/chrony", "/etc/chrony/chrony.conf", "chrony", chronyConfig},
		{"chrony", "chronyd", "/etc", "/etc/chrony.conf", "chronyd", chronyConfig},
		{"systemd-timesyncd", "systemd-timesyncd", "/etc", "/etc/systemd/timesyncd.conf.d/cloud-init.conf", "systemd-timesyncd", timesyncdConfig},
		{"ntp", "ntpd", "/etc/ntpsec", "/etc/ntpsec/ntp.conf", "ntpsec", ntpdConfig},
		{"ntp", "ntpd", "/lib/systemd/system/ntp.service", "/etc/ntp.conf", "ntp", ntpdConfig},
		{"ntp", "ntpd", "/etc", "/etc/ntp.conf", "ntpd", ntpdConfig},
	}
}

func chooseNTP(h *host, client string) (timeClient, error) {
	for _, c := range timeClients() {
		if (client == "auto" || client == c.name) && h.program(c.program) != "" && h.exists(c.where) {
			return c, nil
		}
	}
	if client == "auto" {
		client = "chrony, systemd-timesyncd or ntp"
	}
	return timeClient{}, fmt.Errorf("ntp needs %s, which is not installed on this host; install it in the image", client)
}

// ntpSteps configure the client that the host has and make it read its
// configuration.
func ntpSteps(n *bootstrap.NTP) []step { return []step{ntpStep{n}, ntpReload{n}} }

type ntpStep struct{ *bootstrap.NTP }

func (s ntpStep) name() string { return "ntp" }

func (s ntpStep) file(h *host) (fileStep, error) {
	c, err := chooseNTP(h, s.Client)
	return fileStep{
		label: "ntp", path: c.config, user: "root", group: "root", mode: 0o644, dirMode: 0o755,
		compute: func([]byte, bool) []byte { return []byte(c.render(s.NTP)) },
	}, err
}

func (s ntpStep) prepare(ctx context.Context, h *host, in *Intent) error {
	f, err := s.file(h)
	if err != nil {
		return err
	}
	return f.prepare(ctx, h, in)
}

func (s ntpStep) execute(ctx context.Context, h *host, in *Intent) error {
	f, err := s.file(h)
	if err != nil {
		return err
	}
	return f.execute(ctx, h, in)
}

type ntpReload struct{ *bootstrap.NTP }

func (s ntpReload) name() string { return "ntp reload" }

func (s ntpReload) command(h *host) (commandStep, error) {
	c, err := chooseNTP(h, s.Client)
	return commandStep{label: s.name(), args: []string{"systemctl", "reload-or-restart", c.unit}, service: c.unit}, err
}

func (s ntpReload) prepare(ctx context.Context, h *host, in *Intent) error {
	c, err := s.command(h)
	if err != nil {
		return err
	}
	return c.prepare(ctx, h, in)
}

func (s ntpReload) execute(ctx context.Context, h *host, in *Intent) error {
	c, err := s.command(h)
	if err != nil {
		return err
	}
	return c.execute(ctx, h, in)
}

func sources(n *bootstrap.NTP) string {
	var out strings.Builder
	for _, p := range n.Pools {
		out.WriteString("pool " + p + " iburst\n")
	}
	for _, s := range n.Servers {
		out.WriteString("server " + s + " iburst\n")
	}
	return out.String()
}

func chronyConfig(n *bootstrap.NTP) string {
	return "# Written by elemental-agent, see chrony.conf(5).\n" + sources(n) +
		"driftfile /var/lib/chrony/drift\nmakestep 1 3\nrtcsync\nlogdir /var/log/chrony\n"
}

func ntpdConfig(n *bootstrap.NTP) string {
	return "# Written by elemental-agent, see ntp.conf(5).\n" + sources(n) +
		"driftfile /var/lib/ntp/ntp.drift\nrestrict default kod notrap nomodify nopeer noquery limited\nrestrict 127.0.0.1\nrestrict ::1\n"
}

func timesyncdConfig(n *bootstrap.NTP) string {
	hosts := append(append([]string{}, n.Servers...), n.Pools...)
	return "# Written by elemental-agent, see timesyncd.conf(5).\n\n[Time]\nNTP=" + strings.Join(hosts, " ") + "\n"
}
