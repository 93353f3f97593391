package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// fstabMark is the option that marks cloud-init's lines of fstab.
const fstabMark = "comment=cloudconfig"

// MountSteps returns the steps that write fstab and mount the file systems.
func MountSteps(mounts []bootstrapdata.Mount) []step.Step {
	if len(mounts) == 0 {
		return nil
	}
	steps := []step.Step{fstabStep{mounts}, step.Command{Label: "fstab reload", Args: []string{"systemctl", "daemon-reload"}, Optional: true}}
	for _, m := range mounts {
		steps = append(steps, mountStep{m})
	}
	return steps
}

// fstabStep writes the lines of all mounts at once.
type fstabStep struct{ mounts []bootstrapdata.Mount }

func (s fstabStep) Title() string { return "fstab" }

func (s fstabStep) file(e *step.Execution) files.File {
	return files.File{
		Label: "fstab", Path: "/etc/fstab", User: "root", Group: "root", Mode: 0o644, DirMode: 0o755,
		Compute: func(old []byte, _ bool) []byte {
			text := string(old)
			if text != "" && !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			for _, m := range s.mounts {
				line := strings.Join([]string{mountDevice(e.Host, m.Device), m.Point, m.Type, m.Options + "," + fstabMark, m.Dump, m.Pass}, "\t") + "\n"
				if !strings.Contains("\n"+text, "\n"+line) {
					text += line
				}
			}
			return []byte(text)
		},
	}
}

func (s fstabStep) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	return s.file(e).Prepare(ctx, e, in)
}

func (s fstabStep) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	return s.file(e).Execute(ctx, e, in)
}

// mountDevice returns the first partition of a device, or the device itself if it
// has no partition, as cloud-init does.
func mountDevice(h *host.Host, device string) string {
	if strings.HasPrefix(device, "/dev/") {
		for _, suffix := range []string{"1", "p1", "-part1"} {
			if h.Exists(device + suffix) {
				return device + suffix
			}
		}
	}
	return device
}

// mountStep makes the mount point and mounts it by its line of fstab. With the
// option "nofail" a failure is a warning.
type mountStep struct{ bootstrapdata.Mount }

func (s mountStep) Title() string { return "mount " + s.Device + " " + s.Point }

func (s mountStep) isSwap() bool { return s.Type == "swap" }

func (s mountStep) hasOption(name string) bool {
	for o := range strings.SplitSeq(s.Options, ",") {
		if o == name {
			return true
		}
	}
	return false
}

func (s mountStep) Prepare(_ context.Context, e *step.Execution, in *journal.Intent) error {
	m := e.Manifest()
	if s.isSwap() {
		device := mountDevice(e.Host, s.Device)
		used, err := e.TableHas("/proc/swaps", device, 0)
		if in.Skip = used; !used && err == nil {
			m.Swaps = journal.AddOnce(m.Swaps, device)
		}
		return err
	}
	if s.Point == "none" {
		in.Skip = true
		return nil
	}
	point, err := e.Resolve(s.Point)
	if err != nil {
		return err
	}
	e.RecordMissingDirs(point)
	mounted, err := e.TableHas("/proc/self/mounts", point, 1)
	if !mounted && err == nil && !s.hasOption("noauto") {
		m.Mounts = journal.AddOnce(m.Mounts, point)
	}
	in.Existed = mounted
	return err
}

func (s mountStep) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	args := []string{"mount", s.Point}
	if s.isSwap() {
		device := mountDevice(e.Host, s.Device)
		used, err := e.TableHas("/proc/swaps", device, 0)
		if err != nil || used {
			return err
		}
		args = []string{"swapon", device}
	} else {
		point, err := e.Resolve(s.Point)
		if err != nil {
			return err
		}
		if err := e.MakeDirs(filepath.Clean(point), 0o755, 0, 0); err != nil {
			return err
		}
		// An earlier process may have mounted it already.
		mounted, err := e.TableHas("/proc/self/mounts", point, 1)
		if err != nil || mounted || in.Existed {
			return err
		}
	}
	if s.hasOption("noauto") {
		return nil
	}
	err := e.Run(ctx, args...)
	if err != nil && s.hasOption("nofail") && ctx.Err() == nil {
		e.Warn("mounting %s at %s did not succeed, and its option nofail lets the bootstrap go on: %v", s.Device, s.Point, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", s.Device, s.Point, err)
	}
	return nil
}
