package apply

import (
	"context"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// timeClient is an NTP client as a distribution installs it.
type timeClient struct {
	name, program string
	// marker is a path that exists if the client is installed in this way.
	marker string
	// config is its configuration and unit its systemd unit.
	config, unit string
	render       func(*bootstrapdata.NTP) string
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

func chooseNTP(h *host.Host, client string) (timeClient, error) {
	for _, c := range timeClients() {
		if (client == "auto" || client == c.name) && h.Find(c.program) != "" && h.Exists(c.marker) {
			return c, nil
		}
	}
	if client == "auto" {
		client = "chrony, systemd-timesyncd or ntp"
	}
	return timeClient{}, fmt.Errorf("ntp needs %s, which is not installed on this host; install it in the image", client)
}

// ntpSteps configure the NTP client of the host and reload it.
func ntpSteps(n *bootstrapdata.NTP) []step.Step { return []step.Step{ntpStep{n}, ntpReload{n}} }

type ntpStep struct{ *bootstrapdata.NTP }

func (s ntpStep) Title() string { return "ntp" }

func (s ntpStep) file(e *step.Execution) (files.File, error) {
	c, err := chooseNTP(e.Host, s.Client)
	return files.File{
		Label: "ntp", Path: c.config, User: "root", Group: "root", Mode: 0o644, DirMode: 0o755,
		Compute: func([]byte, bool) []byte { return []byte(c.render(s.NTP)) },
	}, err
}

func (s ntpStep) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	f, err := s.file(e)
	if err != nil {
		return err
	}
	return f.Prepare(ctx, e, in)
}

func (s ntpStep) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	f, err := s.file(e)
	if err != nil {
		return err
	}
	return f.Execute(ctx, e, in)
}

type ntpReload struct{ *bootstrapdata.NTP }

func (s ntpReload) Title() string { return "ntp reload" }

func (s ntpReload) command(e *step.Execution) (step.Command, error) {
	c, err := chooseNTP(e.Host, s.Client)
	return step.Command{Label: s.Title(), Args: []string{"systemctl", "reload-or-restart", c.unit}, Service: c.unit}, err
}

func (s ntpReload) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	c, err := s.command(e)
	if err != nil {
		return err
	}
	return c.Prepare(ctx, e, in)
}

func (s ntpReload) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	c, err := s.command(e)
	if err != nil {
		return err
	}
	return c.Execute(ctx, e, in)
}

func sources(n *bootstrapdata.NTP) string {
	var out strings.Builder
	for _, p := range n.Pools {
		out.WriteString("pool " + p + " iburst\n")
	}
	for _, s := range n.Servers {
		out.WriteString("server " + s + " iburst\n")
	}
	return out.String()
}

func chronyConfig(n *bootstrapdata.NTP) string {
	return "# Written by elemental-agent, see chrony.conf(5).\n" + sources(n) +
		"driftfile /var/lib/chrony/drift\nmakestep 1 3\nrtcsync\nlogdir /var/log/chrony\n"
}

func ntpdConfig(n *bootstrapdata.NTP) string {
	return "# Written by elemental-agent, see ntp.conf(5).\n" + sources(n) +
		"driftfile /var/lib/ntp/ntp.drift\nrestrict default kod notrap nomodify nopeer noquery limited\nrestrict 127.0.0.1\nrestrict ::1\n"
}

func timesyncdConfig(n *bootstrapdata.NTP) string {
	hosts := append(append([]string{}, n.Servers...), n.Pools...)
	return "# Written by elemental-agent, see timesyncd.conf(5).\n\n[Time]\nNTP=" + strings.Join(hosts, " ") + "\n"
}
