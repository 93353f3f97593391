package apply

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// fstabMark is how cloud-init marks its lines of fstab.
const fstabMark = "comment=cloudconfig"

func mountSteps(mounts []bootstrap.Mount) []step {
	if len(mounts) == 0 {
		return nil
	}
	steps := []step{fstabStep{mounts}, commandStep{label: "fstab reload", args: []string{"systemctl", "daemon-reload"}, optional: true}}
	for _, m := range mounts {
		steps = append(steps, mountStep{m})
	}
	return steps
}

// fstabStep writes the lines of all mounts at once.
type fstabStep struct{ mounts []bootstrap.Mount }

func (s fstabStep) name() string { return "fstab" }

func (s fstabStep) file(h *host) fileStep {
	return fileStep{
		label: "fstab", path: "/etc/fstab", user: "root", group: "root", mode: 0o644, dirMode: 0o755,
		compute: func(old []byte, _ bool) []byte {
			text := string(old)
			if text != "" && !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			for _, m := range s.mounts {
				line := strings.Join([]string{h.mountDevice(m.Device), m.Point, m.Type, m.Options + "," + fstabMark, m.Dump, m.Pass}, "\t") + "\n"
				if !strings.Contains("\n"+text, "\n"+line) {
					text += line
				}
			}
			return []byte(text)
		},
	}
}

func (s fstabStep) prepare(ctx context.Context, h *host, in *Intent) error {
	return s.file(h).prepare(ctx, h, in)
}

func (s fstabStep) execute(ctx context.Context, h *host, in *Intent) error {
	return s.file(h).execute(ctx, h, in)
}

// mountDevice is a device's first partition where it has one, as with
// cloud-init.
func (h *host) mountDevice(device string) string {
	if strings.HasPrefix(device, "/dev/") {
		for _, suffix := range []string{"1", "p1", "-part1"} {
			if h.exists(device + suffix) {
				return device + suffix
			}
		}
	}
	return device
}

// mountStep makes the mount point and mounts it by its line of fstab. Where
// "nofail" allows it, a failure is a warning.
type mountStep struct{ bootstrap.Mount }

func (s mountStep) name() string { return "mount " + s.Device + " " + s.Point }

func (s mountStep) swap() bool { return s.Type == "swap" }

func (s mountStep) option(name string) bool {
	for o := range strings.SplitSeq(s.Options, ",") {
		if o == name {
			return true
		}
	}
	return false
}

func (s mountStep) prepare(_ context.Context, h *host, in *Intent) error {
	m := h.manifest()
	if s.swap() {
		device := h.mountDevice(s.Device)
		used, err := h.firstFields("/proc/swaps", device, 0)
		if in.Skip = used; !used && err == nil {
			m.Swaps = add(m.Swaps, device)
		}
		return err
	}
	if s.Point == "none" {
		in.Skip = true
		return nil
	}
	point, err := h.resolve(s.Point)
	if err != nil {
		return err
	}
	h.keepDirs(point)
	mounted, err := h.firstFields("/proc/self/mounts", point, 1)
	if !mounted && err == nil && !s.option("noauto") {
		m.Mounts = add(m.Mounts, point)
	}
	in.Existed = mounted
	return err
}

// firstFields tells whether a table of the kernel has value in a column.
func (h *host) firstFields(file, value string, column int) (bool, error) {
	text, err := h.read(file)
	if err != nil {
		return false, err
	}
	value = strings.NewReplacer(" ", `\040`, "\t", `\011`).Replace(value)
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > column && fields[column] == value {
			return true, nil
		}
	}
	return false, nil
}

func (s mountStep) execute(ctx context.Context, h *host, in *Intent) error {
	args := []string{"mount", s.Point}
	if s.swap() {
		device := h.mountDevice(s.Device)
		used, err := h.firstFields("/proc/swaps", device, 0)
		if err != nil || used {
			return err
		}
		args = []string{"swapon", device}
	} else {
		point, err := h.resolve(s.Point)
		if err != nil {
			return err
		}
		if err := h.mkdirs(filepath.Clean(point), 0o755, 0, 0); err != nil {
			return err
		}
		// Looked at again: an earlier process may have come this far.
		mounted, err := h.firstFields("/proc/self/mounts", point, 1)
		if err != nil || mounted || in.Existed {
			return err
		}
	}
	if s.option("noauto") {
		return nil
	}
	err := h.run(ctx, args...)
	if err != nil && s.option("nofail") && ctx.Err() == nil {
		h.warn("mounting %s at %s did not succeed, and its option nofail lets the bootstrap go on: %v", s.Device, s.Point, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", s.Device, s.Point, err)
	}
	return nil
}
