package apply

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// filesystemStep makes a file system. Where it goes, and whether there is
// anything to do, is decided once.
type filesystemStep struct {
	bootstrap.Filesystem
	index int
}

func (s filesystemStep) name() string { return fmt.Sprintf("fs_setup[%d] %s", s.index, s.Device) }

func (s filesystemStep) prepare(ctx context.Context, h *host, in *Intent) error {
	device, err := h.device(ctx, s.Device)
	if err != nil {
		return err
	}
	in.Device = device
	if s.Keep {
		return s.keep(ctx, h, in)
	}
	switch s.Partition {
	case "none":
		// Formats again whatever is there, also without overwrite: that is what
		// the value means to cloud-init.
		return nil
	case "any", "auto":
		return s.choose(ctx, h, in)
	}
	in.Device = partition(device, s.Partition)
	if !h.exists(in.Device) {
		return fmt.Errorf("making a file system: the device %s does not exist on this host", in.Device)
	}
	blocks, err := h.blocks(ctx, in.Device)
	if err != nil {
		return err
	}
	in.Skip = !s.Overwrite && blocks[0].label == s.Label && blocks[0].filesystem == s.Type
	return nil
}

// partition is the name of a numbered partition: disks whose names end in a
// digit put a "p" in between.
func partition(device, number string) string {
	if strings.HasPrefix(device, "/dev/") && unicode.IsDigit(rune(device[len(device)-1])) {
		return device + "p" + number
	}
	return device + number
}

// keep accepts the wanted file system or an empty device, and nothing else.
func (s filesystemStep) keep(ctx context.Context, h *host, in *Intent) error {
	blocks, err := h.blocks(ctx, in.Device)
	if err != nil {
		return err
	}
	have := blocks[0]
	switch {
	case have.filesystem == s.Type && (s.Label == "" || have.label == s.Label):
		in.Skip = true
	case have.filesystem != "":
		return fmt.Errorf("making a file system %s labelled %q: %s holds %s labelled %q, and nothing is wiped on a running system; wipe it by hand if nobody needs it",
			s.Type, s.Label, in.Device, have.filesystem, have.label)
	case len(blocks) > 1:
		return fmt.Errorf("making a file system %s: %s has partitions; name one of them", s.Type, in.Device)
	}
	return nil
}

// choose finds a partition that has the file system already, or may be
// replaced, or is empty, or else the empty disk. With "auto" the label has to
// match too, with "any" it does not.
func (s filesystemStep) choose(ctx context.Context, h *host, in *Intent) error {
	blocks, err := h.blocks(ctx, in.Device)
	if err != nil {
		return err
	}
	used := false
	for _, b := range blocks {
		if s.Partition == "any" && s.Replace != "" && b.filesystem == s.Replace {
			in.Device = b.name
			return nil
		}
		if b.filesystem == s.Type && (s.Partition == "any" || b.label == s.Label) {
			in.Device, in.Skip = b.name, true
			return nil
		}
		switch {
		case b.kind == "disk" && b.filesystem != "":
			used = true
		case b.kind == "part":
			used = true
			if b.filesystem == "" {
				in.Device = b.name
				return nil
			}
		}
	}
	if used {
		in.Skip = true
		h.warn("fs_setup: %s has neither room for a file system %s nor one already; nothing is made", s.Device, s.Type)
	}
	return nil
}

func (s filesystemStep) execute(ctx context.Context, h *host, in *Intent) error {
	if s.Command != "" {
		line := strings.NewReplacer("%(label)s", s.Label, "%(filesystem)s", s.Type, "%(device)s", in.Device).Replace(s.Command)
		return h.run(ctx, "/bin/sh", "-c", line)
	}
	mkfs := h.program("mkfs."+s.Type, "mk"+s.Type)
	if mkfs == "" {
		return fmt.Errorf("making a file system %s on %s: mkfs.%s is not installed on this host", s.Type, in.Device, s.Type)
	}
	args := []string{mkfs}
	if s.Label != "" {
		args = append(args, s.labelOption(), s.Label)
	}
	if s.UUID != "" {
		args = append(args, s.uuidOptions()...)
	}
	blocks, err := h.blocks(ctx, in.Device)
	if err != nil {
		return err
	}
	// Forced as well when an earlier process may have left half of one.
	if s.Overwrite || h.resumed || blocks[0].kind == "disk" {
		args = append(args, s.force()...)
	}
	return h.run(ctx, append(append(args, s.Options...), in.Device)...)
}

func (s filesystemStep) labelOption() string {
	if s.Type == "vfat" || s.Type == "fat" {
		return "-n"
	}
	return "-L"
}

func (s filesystemStep) uuidOptions() []string {
	switch s.Type {
	case "xfs":
		return []string{"-m", "uuid=" + s.UUID}
	case "vfat":
		return []string{"-i", strings.ReplaceAll(s.UUID, "-", "")}
	}
	return []string{"-U", s.UUID}
}

func (s filesystemStep) force() []string {
	switch {
	case strings.HasPrefix(s.Type, "ext"):
		return []string{"-F"}
	case s.Type == "btrfs" || s.Type == "xfs" || s.Type == "swap" || s.Type == "reiserfs":
		return []string{"-f"}
	}
	return nil
}
