package apply

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// step is a part of an operation that is recorded as a whole.
type step interface {
	name() string
	// prepare looks at the host, says in the intent what execute is to bring
	// about, and records in the manifest what Undo has to take back. It changes
	// nothing outside the operation's directory, and is called again when its
	// intent was not saved.
	prepare(ctx context.Context, h *host, in *Intent) error
	// execute is called again after a kill, with the intent that was saved.
	execute(ctx context.Context, h *host, in *Intent) error
}

// plan lists the steps of a Config in cloud-init's order. What can be known to
// fail is checked first; where there is a bootcmd that may still change it,
// right after that.
func plan(c *bootstrap.Config) []step {
	var steps []step
	var stale []step
	if c.Sentinel != "" {
		stale = []step{sentinelStep{c.Sentinel}}
	}
	if len(c.BootCommands) > 0 {
		steps = append(steps, stale...)
		steps = append(steps, scriptStep{label: "bootcmd", body: bootstrap.Script(c.BootCommands), boot: true}, checkStep{c})
	} else {
		steps = append(steps, checkStep{c})
		steps = append(steps, stale...)
	}
	steps = append(steps, fileSteps(c, false)...)
	for _, d := range c.Disks {
		steps = append(steps, diskStep{d})
	}
	for i, f := range c.Filesystems {
		steps = append(steps, filesystemStep{f, i})
	}
	steps = append(steps, mountSteps(c.Mounts)...)
	if c.HostName != nil {
		steps = append(steps, hostNameSteps(c.HostName.Name)...)
	}
	for _, g := range c.Groups {
		steps = append(steps, groupStep{g})
	}
	for _, u := range c.Users {
		steps = append(steps, userSteps(u)...)
	}
	if c.NTP != nil {
		steps = append(steps, ntpSteps(c.NTP)...)
	}
	for _, d := range c.Directories {
		steps = append(steps, directoryStep{d})
	}
	steps = append(steps, fileSteps(c, true)...)
	for _, l := range c.Links {
		steps = append(steps, linkStep{l})
	}
	steps = append(steps, unitSteps(c)...)
	return append(steps, finalScripts(c)...)
}

// fileLabel names a file as its document does.
func fileLabel(c *bootstrap.Config, index int) string {
	if c.Format == bootstrap.FormatIgnition {
		return "file " + c.Files[index].Path
	}
	return fmt.Sprintf("write_files[%d] %s", index, c.Files[index].Path)
}

func fileSteps(c *bootstrap.Config, deferred bool) []step {
	var steps []step
	for i, f := range c.Files {
		if f.Defer != deferred {
			continue
		}
		s := fileStep{
			label: fileLabel(c, i), path: f.Path,
			user: f.User, group: f.Group, uid: f.UID, gid: f.GID, mode: f.Mode, keepMode: f.KeepMode, dirMode: 0o755,
			compute: func([]byte, bool) []byte { return f.Content },
		}
		if f.Append {
			s.appends = true
			s.compute = func(old []byte, _ bool) []byte { return append(append([]byte{}, old...), f.Content...) }
		}
		steps = append(steps, s)
	}
	return steps
}

// commandStep runs a host command that may be repeated.
type commandStep struct {
	label   string
	args    []string
	service string
	// optional turns a failure into a warning.
	optional bool
}

func (s commandStep) name() string { return s.label }

func (s commandStep) prepare(_ context.Context, h *host, _ *Intent) error {
	if s.service != "" {
		h.manifest().Services = add(h.manifest().Services, s.service)
	}
	return nil
}

func (s commandStep) execute(ctx context.Context, h *host, _ *Intent) error {
	err := h.run(ctx, s.args...)
	if err != nil && s.optional && ctx.Err() == nil {
		h.warn("%s: %v", s.label, err)
		return nil
	}
	return err
}

// hostNameSteps make the name last and take effect.
func hostNameSteps(name string) []step {
	return []step{
		fileStep{
			label: "hostname", path: "/etc/hostname", user: "root", group: "root", mode: 0o644, dirMode: 0o755,
			compute: func([]byte, bool) []byte { return []byte(name + "\n") },
		},
		liveHostName{name},
	}
}

type liveHostName struct{ to string }

func (s liveHostName) name() string { return "hostname " + s.to }

func (s liveHostName) prepare(_ context.Context, h *host, _ *Intent) error {
	old, err := h.read("/proc/sys/kernel/hostname")
	if len(old) > 0 {
		h.manifest().HostName = string(old[:len(old)-1])
	}
	return err
}

func (s liveHostName) execute(ctx context.Context, h *host, _ *Intent) error {
	return h.run(ctx, "hostname", s.to)
}

const modeMask = fs.ModePerm | fs.ModeSticky | fs.ModeSetgid | fs.ModeSetuid
