package node

import (
	"context"
	"log/slog"
	"maps"
	"sync"
)

// Changer changes the Node that runs on this host: a Setter. Its methods do nothing, and
// return false, on a host without a kubelet.
type Changer interface {
	SetProviderID(ctx context.Context, providerID string) (isSet bool, err error)
	// SetLabels leaves other labels as they are.
	SetLabels(ctx context.Context, labels map[string]string) (isSet bool, err error)
}

// Upkeep changes the Node when a plan wants something else of it. It knows only what it has set
// itself. It is safe for concurrent use.
type Upkeep struct {
	node Changer
	log  *slog.Logger

	mu         sync.Mutex
	providerID string
	labels     map[string]string
}

// NewUpkeep returns an Upkeep that knows nothing of the Node yet.
func NewUpkeep(node Changer, log *slog.Logger) *Upkeep {
	return &Upkeep{node: node, log: log}
}

// Forget forgets everything but the providerID of the Node; blank for unknown.
func (u *Upkeep) Forget(providerID string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.providerID, u.labels = providerID, nil
}

// Next returns the next change of the Node, or nil if the Node has what is wanted. A failure is
// only logged: another wish, Forget or the next start of the agent tries again. A change whose
// context ends is due again.
func (u *Upkeep) Next(providerID string, labels map[string]string) func(context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case providerID != "" && providerID != u.providerID:
		return func(ctx context.Context) {
			_, err := u.node.SetProviderID(ctx, providerID)
			u.finish(ctx, "providerID", err, func() { u.providerID = providerID })
		}
	case len(labels) > 0 && !maps.Equal(labels, u.labels):
		return func(ctx context.Context) {
			_, err := u.node.SetLabels(ctx, labels)
			u.finish(ctx, "labels", err, func() { u.labels = labels })
		}
	default:
		return nil
	}
}

func (u *Upkeep) finish(ctx context.Context, what string, err error, record func()) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		u.log.Warn("The Node does not have what the plan wants", "what", what, "error", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	record()
}
