package units

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// bootTarget is a target that starts the document's units in one transaction, so that
// systemd orders them as at boot. It exists until the next boot.
const bootTarget = "elemental-bootstrap.target"

const bootTargetPath = "/run/systemd/system/" + bootTarget

// Steps returns the steps that start and enable units after their files are
// written. Units are enabled only after they started, and units that report success
// only after they ended. Otherwise the boot after a power cut would run the
// bootstrap a second time.
func Steps(c *bootstrapdata.Config) []step.Step {
	steps := bootSteps(c)
	if len(c.Units) == 0 {
		return steps
	}
	starts, enabled := startable(c), []string{}
	if len(starts) > 0 {
		text := "[Unit]\nDescription=Units of the bootstrap data\nWants=" + strings.Join(starts, " ") + "\nAfter=" + strings.Join(starts, " ") + "\n"
		steps = append(steps, files.File{
			Label: bootTarget, Path: bootTargetPath, User: "root", Group: "root", Mode: 0o644, DirMode: 0o755,
			Compute: func([]byte, bool) []byte { return []byte(text) },
		})
	}
	for _, u := range c.Units {
		steps = append(steps, unitStep{u})
		if u.Enable {
			enabled = append(enabled, u.Name)
		}
	}
	steps = append(steps, step.Command{Label: "units reload", Args: []string{"systemctl", "daemon-reload"}})
	for _, u := range c.Units {
		switch {
		case u.Disable:
			steps = append(steps, stopStep{u.Name, []string{"systemctl", "disable", "--now", u.Name}})
		case u.Mask:
			steps = append(steps, stopStep{u.Name, []string{"systemctl", "stop", u.Name}})
		case u.Changed:
			// A running unit does not read its changed file.
			steps = append(steps, step.Command{Label: "restart " + u.Name, Args: []string{"systemctl", "try-restart", u.Name}, Optional: true})
		}
	}
	if len(starts) > 0 {
		steps = append(steps, step.Script{Label: StartLabel, Body: unitScript(c, starts), Sentinel: c.Sentinel})
	}
	if len(enabled) > 0 {
		steps = append(steps, step.Command{Label: "enable units", Args: append([]string{"systemctl", "enable"}, enabled...)})
	}
	return steps
}

// StartLabel is the title of the step that starts the units.
const StartLabel = "units"

func startable(c *bootstrapdata.Config) []string {
	var names []string
	for _, u := range c.Units {
		if u.Starts() && !slices.Contains(names, u.Name) {
			names = append(names, u.Name)
		}
	}
	return names
}

// bootSteps returns the steps that apply settings which a boot after Ignition would
// read.
func bootSteps(c *bootstrapdata.Config) []step.Step {
	if c.Format != bootstrapdata.FormatIgnition {
		return nil
	}
	var steps []step.Step
	for _, b := range []struct {
		dir  string
		args []string
	}{
		{"/etc/systemd/system/", []string{"systemctl", "daemon-reload"}},
		{"/etc/modules-load.d/", []string{"systemctl", "restart", "systemd-modules-load.service"}},
		{"/etc/sysctl.d/", []string{"systemctl", "restart", "systemd-sysctl.service"}},
		{"/etc/tmpfiles.d/", []string{"systemd-tmpfiles", "--create"}},
		{"/etc/udev/rules.d/", []string{"udevadm", "control", "--reload"}},
	} {
		if slices.ContainsFunc(c.Files, func(f bootstrapdata.File) bool { return strings.HasPrefix(f.Path, b.dir) }) {
			steps = append(steps, step.Command{Label: "apply " + b.dir, Args: b.args, Optional: true})
		}
	}
	return steps
}

// unitScript returns the script that starts the units and waits for the units that
// report success. It runs exactly once, in a process that outlives the agent. The
// parser checked the names, so single quotes are enough.
func unitScript(c *bootstrapdata.Config, starts []string) string {
	var awaited []string
	for _, u := range c.Units {
		if u.Awaited {
			awaited = append(awaited, u.Name)
		}
	}
	quoted := func(names []string) string { return "'" + strings.Join(names, "' '") + "'" }
	var out strings.Builder
	out.WriteString("#!/bin/sh\nsystemctl start " + bootTarget + "\nstatus=$?\n")
	if len(awaited) > 0 {
		out.WriteString(`busy() {
	for unit in ` + quoted(awaited) + `; do
		case " $(systemctl show --property=ActiveState --property=SubState --value "$unit" | tr '\n' ' ')" in
		' activating '* | ' deactivating '* | ' reloading '* | *' running '*) return 0 ;;
		esac
	done
	return 1
}
while [ ! -e '` + c.Sentinel + `' ] && busy; do sleep 1; done
[ -e '` + c.Sentinel + `' ] || systemctl show --property=Id --property=ActiveState --property=Result --property=ConditionResult ` + quoted(awaited) + `
`)
	}
	out.WriteString(`for unit in ` + quoted(starts) + `; do
	if systemctl is-failed --quiet "$unit"; then
		status=1
		echo "$unit failed:"
		journalctl --quiet --no-pager --output=cat --lines=100 "_SYSTEMD_INVOCATION_ID=$(systemctl show --property=InvocationID --value "$unit")"
	fi
done
exit "$status"
`)
	return out.String()
}

// stopStep stops or disables a unit. A unit that does not exist is skipped.
type stopStep struct {
	unit string
	args []string
}

func (s stopStep) Title() string { return s.args[1] + " " + s.unit }

func (s stopStep) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	known, err := loaded(ctx, e.Host, s.unit)
	in.Skip = !known
	return err
}

func (s stopStep) Execute(ctx context.Context, e *step.Execution, _ *journal.Intent) error {
	return e.Run(ctx, s.args...)
}

// unitStep records the state of a unit, so that Undo can restore it.
type unitStep struct{ bootstrapdata.Unit }

func (s unitStep) Title() string { return "unit " + s.Name }

func (s unitStep) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	in.Skip = true
	m := e.Manifest()
	if slices.ContainsFunc(m.Units, func(u journal.TouchedUnit) bool { return u.Name == s.Name }) {
		return nil
	}
	file, err := property(ctx, e.Host, s.Name, "UnitFileState")
	if err != nil {
		return err
	}
	active, err := property(ctx, e.Host, s.Name, "ActiveState")
	if err != nil {
		return err
	}
	u := journal.TouchedUnit{Name: s.Name, Enabled: file == "enabled", Active: active == "active" || active == "reloading"}
	m.Units = append(m.Units, u)
	if s.Changed && u.Active {
		m.Services = journal.AddOnce(m.Services, s.Name)
	}
	return nil
}

func (s unitStep) Execute(context.Context, *step.Execution, *journal.Intent) error { return nil }

func property(ctx context.Context, h *host.Host, unit, property string) (string, error) {
	out, err := h.Output(ctx, "systemctl", "show", "--property="+property, "--value", unit)
	if err != nil {
		return "", fmt.Errorf("asking systemd about %s: %w", unit, err)
	}
	return strings.TrimSpace(out), nil
}

// loaded reports whether a file of the unit exists.
func loaded(ctx context.Context, h *host.Host, unit string) (bool, error) {
	state, err := property(ctx, h, unit, "LoadState")
	return state != "not-found", err
}

// Stop stops units that were not active before and disables units that were not
// enabled before.
func Stop(ctx context.Context, h *host.Host, m journal.Manifest) []error {
	var errs []error
	for _, u := range slices.Backward(m.Units) {
		known, err := loaded(ctx, h, u.Name)
		if err != nil || !known {
			errs = append(errs, err)
			continue
		}
		if !u.Active && !strings.Contains(u.Name, "@.") {
			errs = append(errs, stopUnit(ctx, h, u.Name))
		}
		state, err := property(ctx, h, u.Name, "UnitFileState")
		errs = append(errs, err)
		if state == "enabled" && !u.Enabled {
			errs = append(errs, h.Run(ctx, "systemctl", "disable", u.Name))
		}
	}
	return errs
}

// stopUnit stops a unit and resets its failed state. systemd would list it as
// failed even after its file is removed.
func stopUnit(ctx context.Context, h *host.Host, unit string) error {
	if err := h.Run(ctx, "systemctl", "stop", unit); err != nil {
		return err
	}
	state, err := property(ctx, h, unit, "ActiveState")
	if err != nil || state != "failed" {
		return err
	}
	return h.Run(ctx, "systemctl", "reset-failed", unit)
}

// Restore enables and starts the units that were enabled and active before. Call it
// after their files are restored.
func Restore(ctx context.Context, h *host.Host, m journal.Manifest) []error {
	if len(m.Units) == 0 {
		return nil
	}
	errs := []error{h.Run(ctx, "systemctl", "daemon-reload")}
	for _, u := range m.Units {
		known, err := loaded(ctx, h, u.Name)
		if err != nil || !known {
			errs = append(errs, err)
			continue
		}
		if u.Enabled {
			errs = append(errs, h.Run(ctx, "systemctl", "enable", u.Name))
		}
		if u.Active {
			errs = append(errs, h.Run(ctx, "systemctl", "start", u.Name))
		}
	}
	return errs
}

// Kill kills the units that were not active before the operation.
func Kill(ctx context.Context, h *host.Host, m journal.Manifest) error {
	for _, u := range m.Units {
		if u.Active {
			continue
		}
		state, err := property(ctx, h, u.Name, "ActiveState")
		if err != nil {
			return err
		}
		if state == "inactive" || state == "failed" {
			continue
		}
		if err := h.Run(ctx, "systemctl", "kill", "--signal=SIGKILL", u.Name); err != nil {
			return err
		}
	}
	return nil
}
