package storage

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// waitForDevice waits for udev and returns the path of a device with its links
// resolved. A missing device is an error.
func waitForDevice(ctx context.Context, h *host.Host, path string) (string, error) {
	if h.Find("udevadm") != "" {
		if err := h.Run(ctx, "udevadm", "settle"); err != nil {
			return "", err
		}
	}
	target, err := h.Resolve(path)
	if err == nil && !h.Exists(target) {
		err = fmt.Errorf("the device %s does not exist on this host", path)
	}
	return target, err
}

// Disk is the step that partitions a disk. The decision is made once, because a
// half-written partition table looks like one that is in use.
type Disk struct{ bootstrapdata.Disk }

// Title implements step.Step.
func (s Disk) Title() string { return "disk_setup " + s.Device }

// Prepare implements step.Step.
func (s Disk) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	device, err := waitForDevice(ctx, e.Host, s.Device)
	if err != nil {
		return err
	}
	in.Device = device
	blocks, err := inspect(ctx, e.Host, device)
	if err != nil {
		return err
	}
	disk := blocks[0]
	if disk.kind != "disk" && disk.kind != "loop" {
		return fmt.Errorf("partitioning %s: it is a %s, not a disk", s.Device, disk.kind)
	}
	if s.Remove {
		return nil
	}
	if disk.partitioned {
		same, err := s.matches(ctx, e, device)
		if err != nil {
			return err
		}
		if in.Skip = same; same {
			return nil
		}
	}
	if !s.Overwrite && (disk.partitioned || disk.content != "") {
		in.Skip = true
		e.Warn("disk_setup: %s is in use and has another layout; it is left alone, because overwrite is not set", s.Device)
	}
	return nil
}

// matches compares the number and the types of partitions, as cloud-init does.
func (s Disk) matches(ctx context.Context, e *step.Execution, device string) (bool, error) {
	found, err := tableEntries(ctx, e.Host, device)
	if err != nil {
		return false, err
	}
	if s.Whole {
		return len(found) > 0, nil
	}
	if len(found) != len(s.Partitions) {
		return false, nil
	}
	for i, p := range s.Partitions {
		if p.Type != "" && !strings.EqualFold(found[i], s.kind(p.Type)) {
			return false, nil
		}
	}
	return true, nil
}

// kind returns a partition type for sfdisk. For GPT it is the GUID for the two-digit
// MBR code or gdisk's four-digit code.
func (s Disk) kind(code string) string {
	code = strings.ToLower(code)
	if s.TableType == "mbr" {
		if len(code) == 4 && strings.HasSuffix(code, "00") {
			return code[:2]
		}
		return code
	}
	guid, ok := map[string]string{
		"": "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "83": "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
		"82": "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "8e": "E6D6D379-F507-44C2-A23C-238F2A3DF928",
		"fd": "A19D880F-05FC-4D3B-A006-743F0F84911E", "ef": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
		"0c": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7", "7": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
		"07": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
	}[strings.TrimSuffix(code, "00")]
	if !ok {
		return strings.ToUpper(code)
	}
	return guid
}

// Execute implements step.Step.
func (s Disk) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	if s.Remove {
		return e.Run(ctx, "wipefs", "--all", "--force", in.Device)
	}
	table, err := s.table(ctx, e, in.Device)
	if err != nil {
		return err
	}
	if _, err := e.RunCommand(ctx, host.Command{Args: []string{"sfdisk", "--force", "--wipe", "always", in.Device}, Stdin: table}); err != nil {
		return fmt.Errorf("partitioning %s: %w", s.Device, err)
	}
	_, err = waitForDevice(ctx, e.Host, in.Device)
	return err
}

// table returns sfdisk's input. Sizes are in sectors. The last partition takes the
// remaining space.
func (s Disk) table(ctx context.Context, e *step.Execution, device string) (string, error) {
	var sizes [2]int64
	for i, option := range []string{"--getsize64", "--getss"} {
		out, err := e.Output(ctx, "blockdev", option, device)
		if err == nil {
			sizes[i], err = strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		}
		if err == nil && sizes[i] <= 0 {
			err = fmt.Errorf("it is %d", sizes[i])
		}
		if err != nil {
			return "", fmt.Errorf("reading the size of %s: %w", s.Device, err)
		}
	}
	label := "dos"
	fallback := "83"
	if s.TableType == "gpt" {
		label, fallback = "gpt", s.kind("")
	}
	var out strings.Builder
	fmt.Fprintf(&out, "label: %s\n", label)
	if s.Whole {
		fmt.Fprintf(&out, ",,%s\n", fallback)
	}
	for i, p := range s.Partitions {
		kind, size := fallback, ""
		if p.Type != "" {
			kind = s.kind(p.Type)
		}
		if i < len(s.Partitions)-1 {
			size = strconv.FormatInt(int64(float64(sizes[0]/sizes[1])*p.Percent/100), 10)
		}
		fmt.Fprintf(&out, ",%s,%s\n", size, kind)
	}
	return out.String(), nil
}
