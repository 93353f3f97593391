package apply

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/accounts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/storage"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/units"
)

// plan returns the steps of a Config in cloud-init's order. The check comes first,
// or after bootcmd, which may make users and programs that the check needs.
func plan(c *bootstrapdata.Config) []step.Step {
	var steps []step.Step
	var stale []step.Step
	if c.Sentinel != "" {
		stale = []step.Step{sentinelStep{c.Sentinel}}
	}
	if len(c.BootCommands) > 0 {
		steps = append(steps, stale...)
		steps = append(steps, step.Script{Label: "bootcmd", Body: bootstrapdata.Script(c.BootCommands), Boot: true}, checkStep{c})
	} else {
		steps = append(steps, checkStep{c})
		steps = append(steps, stale...)
	}
	steps = append(steps, files.Steps(c, false)...)
	for _, d := range c.Disks {
		steps = append(steps, storage.Disk{Disk: d})
	}
	for i, f := range c.Filesystems {
		steps = append(steps, storage.Filesystem{Filesystem: f, Index: i})
	}
	steps = append(steps, storage.MountSteps(c.Mounts)...)
	if c.HostName != nil {
		steps = append(steps, hostNameSteps(c.HostName.Name)...)
	}
	for _, g := range c.Groups {
		steps = append(steps, accounts.Group{Group: g})
	}
	for _, u := range c.Users {
		steps = append(steps, accounts.UserSteps(u)...)
	}
	if len(c.RootSSHKeys) > 0 {
		steps = append(steps, accounts.RootKeys(c.RootSSHKeys))
	}
	for _, p := range c.Passwords {
		steps = append(steps, accounts.Password{Password: p})
	}
	if c.NTP != nil {
		steps = append(steps, ntpSteps(c.NTP)...)
	}
	for _, d := range c.Directories {
		steps = append(steps, files.Directory{Directory: d})
	}
	steps = append(steps, files.Steps(c, true)...)
	for _, l := range c.Links {
		steps = append(steps, files.Link{Link: l})
	}
	steps = append(steps, units.Steps(c)...)
	return append(steps, finalScripts(c)...)
}

// hostNameSteps set the host name in /etc/hostname and in the running kernel.
func hostNameSteps(name string) []step.Step {
	return []step.Step{
		files.File{
			Label: "hostname", Path: "/etc/hostname", User: "root", Group: "root", Mode: 0o644, DirMode: 0o755,
			Compute: func([]byte, bool) []byte { return []byte(name + "\n") },
		},
		liveHostName{name},
	}
}

type liveHostName struct{ to string }

func (s liveHostName) Title() string { return "hostname " + s.to }

func (s liveHostName) Prepare(_ context.Context, e *step.Execution, _ *journal.Intent) error {
	old, err := e.Read("/proc/sys/kernel/hostname")
	if len(old) > 0 {
		e.Manifest().HostName = string(old[:len(old)-1])
	}
	return err
}

func (s liveHostName) Execute(ctx context.Context, e *step.Execution, _ *journal.Intent) error {
	return e.Run(ctx, "hostname", s.to)
}
