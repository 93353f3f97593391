package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
)

// block is a disk or a partition.
type block struct {
	name string
	// kind is lsblk's type, such as "disk", "part" or "loop".
	kind string
	// content is the type of the file system, or of the other data that was recognized,
	// such as "swap" or "LVM2_member". It is blank for an empty device.
	content string
	label   string
	// partitioned is true for a disk that has partitions.
	partitioned bool
}

// list lists a device and its partitions as the kernel knows them.
func list(ctx context.Context, h *host.Host, device string) ([]block, error) {
	out, err := h.Output(ctx, "lsblk", "--pairs", "--paths", "--output", "NAME,TYPE", device)
	if err != nil {
		return nil, err
	}
	var all []block
	for line := range strings.SplitSeq(out, "\n") {
		fields := pairs(line)
		if fields["NAME"] != "" {
			all = append(all, block{name: fields["NAME"], kind: fields["TYPE"]})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("lsblk shows nothing for %s", device)
	}
	all[0].partitioned = len(all) > 1
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

// inspect lists a device and its partitions with their content. It reads the devices
// themselves: lsblk takes the content from udev's database, where a device that was
// formatted a moment ago, or that udev never saw, seems to be empty.
func inspect(ctx context.Context, h *host.Host, device string) ([]block, error) {
	all, err := list(ctx, h, device)
	if err != nil {
		return nil, err
	}
	for i := range all {
		b := &all[i]
		found, err := signatures(ctx, h, b.name)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			switch {
			case s.Usage == "partition-table" && b.kind != "part":
				// The kernel may not have read the table.
				if b.partitioned, err = hasPartitions(ctx, h, b); err != nil {
					return nil, err
				}
			case b.content == "":
				b.content, b.label = s.Type, s.Label
			}
		}
	}
	return all, nil
}

// signature is a mark by which a file system, a partition table or other data is
// recognized.
type signature struct {
	Type, Label string
	// Usage is "filesystem", "raid", "crypto", "partition-table" or "other".
	Usage string
}

// signatures reads the signatures on a device.
func signatures(ctx context.Context, h *host.Host, device string) ([]signature, error) {
	out, err := h.Output(ctx, "wipefs", "--no-act", "--json", "--output", "TYPE,LABEL,USAGE", device)
	if err != nil {
		return nil, err
	}
	var found struct{ Signatures []signature }
	if strings.TrimSpace(out) == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return nil, fmt.Errorf("reading what wipefs found on %s: %w", device, err)
	}
	return found.Signatures, nil
}

// hasPartitions reports whether a disk with a partition table has a partition. Without
// sfdisk, which could tell, it assumes so.
func hasPartitions(ctx context.Context, h *host.Host, disk *block) (bool, error) {
	if disk.partitioned || h.Find("sfdisk") == "" {
		return true, nil
	}
	entries, err := tableEntries(ctx, h, disk.name)
	return len(entries) > 0, err
}

// tableEntries returns the types of the partitions in a disk's partition table.
func tableEntries(ctx context.Context, h *host.Host, disk string) ([]string, error) {
	out, err := h.Output(ctx, "sfdisk", "--dump", disk)
	if err != nil {
		return nil, err
	}
	var types []string
	for line := range strings.SplitSeq(out, "\n") {
		if !strings.HasPrefix(line, disk) {
			continue
		}
		_, kind, _ := strings.Cut(line, "type=")
		kind, _, _ = strings.Cut(kind, ",")
		types = append(types, strings.TrimSpace(kind))
	}
	return types, nil
}
