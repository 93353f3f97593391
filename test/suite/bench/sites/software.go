package sites

import (
	"context"
	"log/slog"
	"net/netip"
	"os"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
)

// Serve runs hosts whose nodes can be upgraded until ctx or standard input ends.
func Serve(ctx context.Context) error {
	return remote.Serve(ctx, os.Stdin, os.Stdout, slog.New(slog.DiscardHandler), software{})
}

// software is that of hosts without processes: whatever it is to do succeeds at once.
type software struct{}

// Check is fleet.Software's.
func (software) Check([]byte, string) error { return nil }

// Bootstrap is fleet.Software's.
func (software) Bootstrap(context.Context, fleet.Machine, []byte, string, func(string)) error {
	return nil
}

// Boot is fleet.Software's.
func (software) Boot(context.Context, fleet.Machine) error { return nil }

// Halt is fleet.Software's.
func (software) Halt(fleet.Machine) {}

// Network is fleet.Software's.
func (software) Network(fleet.Machine, bool) {}

// Refuse is fleet.Software's.
func (software) Refuse(fleet.Machine, netip.AddrPort) {}

// Remove is fleet.Software's.
func (software) Remove(fleet.Machine) error { return nil }

// CheckUpgrade is fleet.Upgrader's.
func (software) CheckUpgrade(context.Context, fleet.Machine, protocol.NodeUpgrade) error { return nil }

// Upgrade is fleet.Upgrader's.
func (software) Upgrade(_ context.Context, _ fleet.Machine, _ protocol.NodeUpgrade, progress func(string)) error {
	for _, step := range []string{"kubelet", "gate"} {
		progress(step)
	}
	return nil
}
