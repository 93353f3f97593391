package review

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// keep is how long a decision of the management cluster is used.
	keep = 10 * time.Second
	// maxKept bounds the decisions of each kind.
	maxKept = 4096
	// maxAsked bounds the reviews under way of each kind, so that strangers with invented
	// tokens don't occupy the management cluster.
	maxAsked = 64
	// timeout bounds a review, with the wait for others.
	timeout = 10 * time.Second
)

// ErrUnavailable says that the management cluster could not be asked, so nothing is known of
// the caller.
var ErrUnavailable = errors.New("the management cluster can't be asked")

// asker creates reviews.
type asker struct {
	client client.Writer
	turns  chan struct{}
}

func newAsker(c client.Writer) asker { return asker{client: c, turns: make(chan struct{}, maxAsked)} }

// ask fills the status of a review. Its error is ErrUnavailable.
func (a asker) ask(ctx context.Context, review client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	if err := a.client.Create(ctx, review); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Options of the authenticator and the authorizer.
type Options struct {
	// Client creates reviews in the management cluster.
	Client client.Writer
	Clock  clock.PassiveClock
}
