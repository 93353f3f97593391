package storage

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// Filesystem is the step that makes a file system. The device is chosen once.
type Filesystem struct {
	bootstrapdata.Filesystem
	Index int
}

// Title implements step.Step.
func (s Filesystem) Title() string { return fmt.Sprintf("fs_setup[%d] %s", s.Index, s.Device) }

// Prepare implements step.Step.
func (s Filesystem) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	device, err := waitForDevice(ctx, e.Host, s.Device)
	if err != nil {
		return err
	}
	in.Device = device
	if s.Keep {
		return s.checkEmpty(ctx, e, in)
	}
	switch s.Partition {
	case "none":
		// Like cloud-init, this formats the device even without overwrite.
		return nil
	case "any", "auto":
		return s.choose(ctx, e, in)
	}
	in.Device = partition(device, s.Partition)
	if !e.Exists(in.Device) {
		return fmt.Errorf("making a file system: the device %s does not exist on this host", in.Device)
	}
	blocks, err := inspect(ctx, e.Host, in.Device)
	if err != nil {
		return err
	}
	in.Skip = !s.Overwrite && blocks[0].label == s.Label && blocks[0].content == s.Type
	return nil
}

// partition returns the name of a numbered partition. Disks whose names end in a
// digit have a "p" before the number.
func partition(device, number string) string {
	if strings.HasPrefix(device, "/dev/") && unicode.IsDigit(rune(device[len(device)-1])) {
		return device + "p" + number
	}
	return device + number
}

// checkEmpty skips the step if the device has the wanted file system. Otherwise it fails
// unless the device is empty.
func (s Filesystem) checkEmpty(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	blocks, err := inspect(ctx, e.Host, in.Device)
	if err != nil {
		return err
	}
	have := blocks[0]
	switch {
	case have.content == s.Type && (s.Label == "" || have.label == s.Label):
		in.Skip = true
	case have.content != "":
		return fmt.Errorf("making a file system %s labelled %q: %s holds %s labelled %q, and nothing is wiped on a running system; wipe it by hand if nobody needs it",
			s.Type, s.Label, in.Device, have.content, have.label)
	case have.partitioned:
		return fmt.Errorf("making a file system %s: %s has partitions; name one of them", s.Type, in.Device)
	}
	return nil
}

// choose finds a partition that has the file system already, that may be replaced,
// or that is empty. An empty disk is used as a whole. "auto" also compares the
// label, "any" does not.
func (s Filesystem) choose(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	blocks, err := inspect(ctx, e.Host, in.Device)
	if err != nil {
		return err
	}
	used := blocks[0].partitioned
	for _, b := range blocks {
		if s.Partition == "any" && s.Replace != "" && b.content == s.Replace {
			in.Device = b.name
			return nil
		}
		if b.content == s.Type && (s.Partition == "any" || b.label == s.Label) {
			in.Device, in.Skip = b.name, true
			return nil
		}
		switch {
		case b.kind == "disk" && b.content != "":
			used = true
		case b.kind == "part":
			used = true
			if b.content == "" {
				in.Device = b.name
				return nil
			}
		}
	}
	if used {
		in.Skip = true
		e.Warn("fs_setup: %s has neither room for a file system %s nor one already; nothing is made", s.Device, s.Type)
	}
	return nil
}

// Execute implements step.Step.
func (s Filesystem) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	if s.Command != "" {
		line := strings.NewReplacer("%(label)s", s.Label, "%(filesystem)s", s.Type, "%(device)s", in.Device).Replace(s.Command)
		return e.Run(ctx, "/bin/sh", "-c", line)
	}
	mkfs := e.Find("mkfs."+s.Type, "mk"+s.Type)
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
	blocks, err := list(ctx, e.Host, in.Device)
	if err != nil {
		return err
	}
	// Also forced when an earlier process may have left an incomplete file system.
	if s.Overwrite || e.Resumed || blocks[0].kind == "disk" {
		args = append(args, s.force()...)
	}
	return e.Run(ctx, append(append(args, s.Options...), in.Device)...)
}

func (s Filesystem) labelOption() string {
	if s.Type == "vfat" || s.Type == "fat" {
		return "-n"
	}
	return "-L"
}

func (s Filesystem) uuidOptions() []string {
	switch s.Type {
	case "xfs":
		return []string{"-m", "uuid=" + s.UUID}
	case "vfat":
		return []string{"-i", strings.ReplaceAll(s.UUID, "-", "")}
	}
	return []string{"-U", s.UUID}
}

func (s Filesystem) force() []string {
	switch {
	case strings.HasPrefix(s.Type, "ext"):
		return []string{"-F"}
	case s.Type == "btrfs" || s.Type == "xfs" || s.Type == "swap" || s.Type == "reiserfs":
		return []string{"-f"}
	}
	return nil
}
