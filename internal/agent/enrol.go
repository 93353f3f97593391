package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// enroller enrols the host and keeps the registration token until it is not needed. It
// is safe for concurrent use.
type enroller struct {
	store       *state.Store
	manager     *connection.Manager
	observer    *observer
	hello       func() protocol.Hello
	removeToken func() error
	log         *slog.Logger

	mu    sync.Mutex
	token string
}

// enrol enrols the host and stores the manager's answer. A host that was enrolled
// before reports its former identity, so that it can be re-adopted without a token.
func (e *enroller) enrol(ctx context.Context) error {
	e.observer.observeAll(ctx)
	observed, identity := e.observer.facts.current(), e.store.Identity()
	request := protocol.EnrolRequest{
		Hello: e.hello(), Inventory: observed.inventory, Addresses: observed.addresses, Cleanliness: observed.cleanliness,
	}
	if identity.Enrolled() {
		request.Previous = &protocol.Previous{HostID: identity.HostID, Namespace: identity.Namespace, Name: identity.Name}
	}
	response, err := e.manager.Client().Enrol(ctx, e.currentToken(), request)
	if err != nil {
		return err
	}
	return e.store.UpdateIdentity(func(i *state.Identity) {
		i.HostID, i.Namespace, i.Name, i.Approved = response.HostID, response.Namespace, response.Name, response.Approved
		i.Generation = max(response.Generation, 1)
		if i.RotatedAt.IsZero() {
			i.RotatedAt = response.ServerTime.UTC()
		}
	})
}

// forgetToken implements Agent.ForgetToken.
func (e *enroller) forgetToken() {
	if e.currentToken() == "" || !e.store.Identity().Approved {
		return
	}
	e.mu.Lock()
	e.token = ""
	e.mu.Unlock()
	if e.removeToken == nil {
		return
	}
	if err := e.removeToken(); err != nil {
		e.log.Warn("Could not remove the registration token from the configuration; it is not needed any more", "error", err)
		return
	}
	e.log.Info("Removed the registration token from the configuration; it is not needed any more")
}

func (e *enroller) currentToken() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.token
}
