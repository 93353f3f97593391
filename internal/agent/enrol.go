package agent

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Enrol asks the manager for a place in the fleet and remembers the answer.
// Doing so again with the same key is the same as doing it once. A host that
// had a place says which one: it may be let in again without a token.
func (a *Agent) Enrol(ctx context.Context) error {
	a.observe(ctx)
	seen, who := a.facts.current(), a.Store.Identity()
	request := protocol.EnrolRequest{
		Hello: a.hello(), Inventory: seen.inventory, Addresses: seen.addresses, Cleanliness: seen.cleanliness,
	}
	if who.Enrolled() {
		request.Previous = &protocol.Previous{HostID: who.HostID, Namespace: who.Namespace, Name: who.Name}
	}
	response, err := a.Link.Client().Enrol(ctx, a.registrationToken(), request)
	if err != nil {
		return err
	}
	return a.Store.UpdateIdentity(func(i *state.Identity) {
		i.HostID, i.Namespace, i.Name, i.Approved = response.HostID, response.Namespace, response.Name, response.Approved
		i.Generation = max(response.Generation, 1)
		if i.RotatedAt.IsZero() {
			i.RotatedAt = response.ServerTime.UTC()
		}
	})
}

// ForgetToken drops the registration token of a host that was let in, from
// memory and from the configuration: whoever reads the disk later cannot enrol
// with it. It does nothing while the host is not approved.
func (a *Agent) ForgetToken() {
	if a.registrationToken() == "" || !a.Store.Identity().Approved {
		return
	}
	a.mu.Lock()
	a.Token = ""
	a.mu.Unlock()
	if a.ForgetTokenFile == nil {
		return
	}
	if err := a.ForgetTokenFile(); err != nil {
		a.Log.Warn("The registration token stays in the configuration, although it is not needed any more", "error", err)
		return
	}
	a.Log.Info("Removed the registration token from the configuration; it is not needed any more")
}

func (a *Agent) registrationToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Token
}
