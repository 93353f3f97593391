package elemental

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Platform is that of Linux, with the image of Elemental OS among the facts.
type Platform struct {
	platform.Platform

	System System
}

// Inventory returns the hardware and the operating system with its image.
func (p Platform) Inventory(ctx context.Context) (protocol.Inventory, error) {
	inventory, err := p.Platform.Inventory(ctx)
	inventory.OS.Image = p.System.Image()
	return inventory, err
}
