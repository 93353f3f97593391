package storage

import (
	"context"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
)

// Unmount unmounts the file systems and swap devices of a Manifest.
func Unmount(ctx context.Context, h *host.Host, m journal.Manifest) []error {
	var errs []error
	for _, point := range slices.Backward(m.Mounts) {
		mounted, err := h.TableHas("/proc/self/mounts", point, 1)
		if mounted && err == nil {
			err = h.Run(ctx, "umount", point)
		}
		errs = append(errs, err)
	}
	for _, device := range m.Swaps {
		used, err := h.TableHas("/proc/swaps", device, 0)
		if used && err == nil {
			err = h.Run(ctx, "swapoff", device)
		}
		errs = append(errs, err)
	}
	return errs
}
