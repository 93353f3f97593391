package apply

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// device waits for a device, follows its links and insists that it is there.
func (h *host) device(ctx context.Context, path string) (string, error) {
	if h.program("udevadm") != "" {
		if err := h.run(ctx, "udevadm", "settle"); err != nil {
			return "", err
		}
	}
	target, err := h.resolve(path)
	if err == nil && !h.exists(target) {
		err = fmt.Errorf("the device %s does not exist on this host", path)
	}
	return target, err
}

// block is a disk or a partition as lsblk shows it.
type block struct{ name, kind, filesystem, label string }

// blocks lists a device and what is on it.
func (h *host) blocks(ctx context.Context, device string) ([]block, error) {
	out, err := h.output(ctx, "lsblk", "--pairs", "--paths", "--output", "NAME,TYPE,FSTYPE,LABEL", device)
	if err != nil {
		return nil, err
	}
	var all []block
	for line := range strings.SplitSeq(out, "\n") {
		fields := pairs(line)
		if fields["NAME"] != "" {
			all = append(all, block{fields["NAME"], fields["TYPE"], fields["FSTYPE"], fields["LABEL"]})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("lsblk shows nothing for %s", device)
	}
	return all, nil
}

// pairs splits A="b" C="d e".
func pairs(line string) map[string]string {
	out := map[string]string{}
	for {
		name, rest, ok := strings.Cut(line, `="`)
		if !ok {
			return out
		}
		value, after, ok := strings.Cut(rest, `"`)
		if !ok {
			return out
		}
		out[strings.TrimSpace(name)] = value
		line = after
	}
}

// diskStep partitions a disk. Decided once: what was begun is finished, also
// when the half-written table looks like one that is in use.
type diskStep struct{ bootstrap.Disk }

func (s diskStep) name() string { return "disk_setup " + s.Device }

func (s diskStep) prepare(ctx context.Context, h *host, in *Intent) error {
	device, err := h.device(ctx, s.Device)
	if err != nil {
		return err
	}
	in.Device = device
	blocks, err := h.blocks(ctx, device)
	if err != nil {
		return err
	}
	if blocks[0].kind != "disk" && blocks[0].kind != "loop" {
		return fmt.Errorf("partitioning %s: it is a %s, not a disk", s.Device, blocks[0].kind)
	}
	if s.Remove {
		return nil
	}
	if len(blocks) > 1 {
		same, err := s.matches(ctx, h, device)
		if err != nil {
			return err
		}
		if in.Skip = same; same {
			return nil
		}
	}
	if !s.Overwrite && (len(blocks) > 1 || blocks[0].filesystem != "") {
		in.Skip = true
		h.warn("disk_setup: %s is in use and has another layout; it is left alone, because overwrite is not set", s.Device)
	}
	return nil
}

// matches compares the number and the types of partitions, as cloud-init does.
func (s diskStep) matches(ctx context.Context, h *host, device string) (bool, error) {
	out, err := h.output(ctx, "sfdisk", "--dump", device)
	if err != nil {
		return false, err
	}
	var found []string
	for line := range strings.SplitSeq(out, "\n") {
		if !strings.HasPrefix(line, device) {
			continue
		}
		_, kind, _ := strings.Cut(line, "type=")
		kind, _, _ = strings.Cut(kind, ",")
		found = append(found, strings.TrimSpace(kind))
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

// kind is a partition type as sfdisk wants it: for GPT the GUID of the type
// that the two-digit code or gdisk's four-digit one stands for.
func (s diskStep) kind(code string) string {
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

func (s diskStep) execute(ctx context.Context, h *host, in *Intent) error {
	if s.Remove {
		return h.run(ctx, "wipefs", "--all", "--force", in.Device)
	}
	table, err := s.table(ctx, h, in.Device)
	if err != nil {
		return err
	}
	if _, err := h.opts.System.Run(ctx, Command{Args: []string{"sfdisk", "--force", "--wipe", "always", in.Device}, Stdin: table}); err != nil {
		return fmt.Errorf("partitioning %s: %w", s.Device, err)
	}
	_, err = h.device(ctx, in.Device)
	return err
}

// table is sfdisk's input: sizes in sectors, the last partition takes the rest.
func (s diskStep) table(ctx context.Context, h *host, device string) (string, error) {
	var sizes [2]int64
	for i, option := range []string{"--getsize64", "--getss"} {
		out, err := h.output(ctx, "blockdev", option, device)
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
