package agent

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Enrol asks the manager for a place in the fleet and remembers the answer.
// Doing so again with the same key is the same as doing it once.
func (a *Agent) Enrol(ctx context.Context) error {
	a.observe(ctx)
	seen := a.facts.current()
	response, err := a.Link.Client().Enrol(ctx, a.Token, protocol.EnrolRequest{
		Hello: a.hello(), Inventory: seen.inventory, Addresses: seen.addresses, Cleanliness: seen.cleanliness,
	})
	if err != nil {
		return err
	}
	err = a.Store.UpdateIdentity(func(i *state.Identity) {
		i.HostID, i.Namespace, i.Name, i.Approved = response.HostID, response.Namespace, response.Name, response.Approved
		if i.RotatedAt.IsZero() {
			i.RotatedAt = response.ServerTime.UTC()
		}
	})
	if err != nil {
		return err
	}
	return nil
}
