package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// bootTarget starts the document's units in one transaction, in which systemd
// orders them as it would at boot. It lives until the next one.
const bootTarget = "elemental-bootstrap.target"

const bootTargetPath = "/run/systemd/system/" + bootTarget

// unitSteps take units into use once their files are in place. They are enabled
// only after they were started and, where one reports success, after it ended:
// otherwise a power cut would have the next boot run a bootstrap once more.
func unitSteps(c *bootstrap.Config) []step {
	steps := bootSteps(c)
	if len(c.Units) == 0 {
		return steps
	}
	starts, enabled := startable(c), []string{}
	if len(starts) > 0 {
		text := "[Unit]\nDescription=Units of the bootstrap data\nWants=" + strings.Join(starts, " ") + "\nAfter=" + strings.Join(starts, " ") + "\n"
		steps = append(steps, fileStep{
			label: bootTarget, path: bootTargetPath, user: "root", group: "root", mode: 0o644, dirMode: 0o755,
			compute: func([]byte, bool) []byte { return []byte(text) },
		})
	}
	for _, u := range c.Units {
		steps = append(steps, unitStep{u})
		if u.Enable {
			enabled = append(enabled, u.Name)
		}
	}
	steps = append(steps, commandStep{label: "units reload", args: []string{"systemctl", "daemon-reload"}})
	for _, u := range c.Units {
		switch {
		case u.Disable:
			steps = append(steps, offStep{u.Name, []string{"systemctl", "disable", "--now", u.Name}})
		case u.Mask:
			steps = append(steps, offStep{u.Name, []string{"systemctl", "stop", u.Name}})
		case u.Changed:
			// One that runs already would not notice.
			steps = append(steps, commandStep{label: "restart " + u.Name, args: []string{"systemctl", "try-restart", u.Name}, optional: true})
		}
	}
	if len(starts) > 0 {
		steps = append(steps, scriptStep{label: unitsLabel, body: unitScript(c, starts), sentinel: c.Sentinel})
	}
	if len(enabled) > 0 {
		steps = append(steps, commandStep{label: "enable units", args: append([]string{"systemctl", "enable"}, enabled...)})
	}
	return steps
}

const unitsLabel = "units"

func startable(c *bootstrap.Config) []string {
	var names []string
	for _, u := range c.Units {
		if u.Starts() && !slices.Contains(names, u.Name) {
			names = append(names, u.Name)
		}
	}
	return names
}

// bootSteps make settings take effect that a boot would read after Ignition.
func bootSteps(c *bootstrap.Config) []step {
	if c.Format != bootstrap.FormatIgnition {
		return nil
	}
	var steps []step
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
		if slices.ContainsFunc(c.Files, func(f bootstrap.File) bool { return strings.HasPrefix(f.Path, b.dir) }) {
			steps = append(steps, commandStep{label: "apply " + b.dir, args: b.args, optional: true})
		}
	}
	return steps
}

// unitScript starts the units and waits for those that report success. It is
// run exactly once, by a process that outlives the agent. The names need no
// other quoting: they were checked.
func unitScript(c *bootstrap.Config, starts []string) string {
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

// offStep takes a unit out of use. One that does not exist is out of use.
type offStep struct {
	unit string
	args []string
}

func (s offStep) name() string { return s.args[1] + " " + s.unit }

func (s offStep) prepare(ctx context.Context, h *host, in *Intent) error {
	known, err := h.loaded(ctx, s.unit)
	in.Skip = !known
	return err
}

func (s offStep) execute(ctx context.Context, h *host, _ *Intent) error { return h.run(ctx, s.args...) }

// unitStep records a unit as it is, so that Undo can make it so again.
type unitStep struct{ bootstrap.Unit }

func (s unitStep) name() string { return "unit " + s.Name }

func (s unitStep) prepare(ctx context.Context, h *host, in *Intent) error {
	in.Skip = true
	m := h.manifest()
	if slices.ContainsFunc(m.Units, func(u TouchedUnit) bool { return u.Name == s.Name }) {
		return nil
	}
	file, err := h.unitProperty(ctx, s.Name, "UnitFileState")
	if err != nil {
		return err
	}
	active, err := h.unitProperty(ctx, s.Name, "ActiveState")
	if err != nil {
		return err
	}
	u := TouchedUnit{Name: s.Name, Enabled: file == "enabled", Active: active == "active" || active == "reloading"}
	m.Units = append(m.Units, u)
	if s.Changed && u.Active {
		m.Services = add(m.Services, s.Name)
	}
	return nil
}

func (s unitStep) execute(context.Context, *host, *Intent) error { return nil }

func (h *host) unitProperty(ctx context.Context, unit, property string) (string, error) {
	out, err := h.output(ctx, "systemctl", "show", "--property="+property, "--value", unit)
	if err != nil {
		return "", fmt.Errorf("asking systemd about %s: %w", unit, err)
	}
	return strings.TrimSpace(out), nil
}

// loaded tells whether systemd knows a unit by its file.
func (h *host) loaded(ctx context.Context, unit string) (bool, error) {
	state, err := h.unitProperty(ctx, unit, "LoadState")
	return state != "not-found", err
}

// stopUnits takes units out of use that were not in use before.
func (h *host) stopUnits(ctx context.Context, m Manifest) []error {
	var errs []error
	for _, u := range slices.Backward(m.Units) {
		known, err := h.loaded(ctx, u.Name)
		if err != nil || !known {
			errs = append(errs, err)
			continue
		}
		if !u.Active && !strings.Contains(u.Name, "@.") {
			errs = append(errs, h.stopUnit(ctx, u.Name))
		}
		state, err := h.unitProperty(ctx, u.Name, "UnitFileState")
		errs = append(errs, err)
		if state == "enabled" && !u.Enabled {
			errs = append(errs, h.run(ctx, "systemctl", "disable", u.Name))
		}
	}
	return errs
}

// stopUnit stops a unit, and has systemd forget that it failed: it would show it
// as failed long after its file is gone.
func (h *host) stopUnit(ctx context.Context, unit string) error {
	if err := h.run(ctx, "systemctl", "stop", unit); err != nil {
		return err
	}
	state, err := h.unitProperty(ctx, unit, "ActiveState")
	if err != nil || state != "failed" {
		return err
	}
	return h.run(ctx, "systemctl", "reset-failed", unit)
}

// restoreUnits takes units into use again that were so before, once their files
// are back.
func (h *host) restoreUnits(ctx context.Context, m Manifest) []error {
	if len(m.Units) == 0 {
		return nil
	}
	errs := []error{h.run(ctx, "systemctl", "daemon-reload")}
	for _, u := range m.Units {
		known, err := h.loaded(ctx, u.Name)
		if err != nil || !known {
			errs = append(errs, err)
			continue
		}
		if u.Enabled {
			errs = append(errs, h.run(ctx, "systemctl", "enable", u.Name))
		}
		if u.Active {
			errs = append(errs, h.run(ctx, "systemctl", "start", u.Name))
		}
	}
	return errs
}

// Abort kills the units that an operation is starting, which live on without
// the script that started them. A unit that ended meanwhile is no error.
func Abort(ctx context.Context, p Progress, opts Options) error {
	if p.Current == nil || p.Current.Step != unitsLabel {
		return nil
	}
	opts.Journal = nil
	h, err := newHost(opts)
	if err != nil {
		return err
	}
	for _, u := range p.Manifest.Units {
		if u.Active {
			continue
		}
		state, err := h.unitProperty(ctx, u.Name, "ActiveState")
		if err != nil {
			return err
		}
		if state == "inactive" || state == "failed" {
			continue
		}
		if err := h.run(ctx, "systemctl", "kill", "--signal=SIGKILL", u.Name); err != nil {
			return err
		}
	}
	return nil
}
