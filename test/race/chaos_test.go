package race

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lag bounds how long a watch stands still, and with it a cache.
	lag = 400 * time.Millisecond
	// slowness bounds how long a write is under way before it arrives.
	slowness = 100 * time.Millisecond
)

var errLost = errors.New("the answer was lost")

// counts of what went wrong on purpose.
type counts struct {
	stalls, conflicts, lost atomic.Int64
}

func oneIn(n int) bool { return rand.IntN(n) == 0 }

// pause waits for a random time of at most limit, or until ctx ends.
func pause(ctx context.Context, limit time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(limit)):
	}
}

// withStaleCache has the watches of a configuration's clients stand still now
// and then, each by itself: caches then show a former state, and events are late.
func withStaleCache(config *rest.Config, n *counts) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return lagging{next, n} })
	return config
}

type lagging struct {
	http.RoundTripper

	counts *counts
}

// RoundTrip implements http.RoundTripper.
func (l lagging) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") == "true" {
		response.Body = stalling{response.Body, request.Context(), l.counts}
	}
	return response, err //nolint:wrapcheck // it is another's to explain
}

type stalling struct {
	io.ReadCloser

	ctx    context.Context //nolint:containedctx // the request's
	counts *counts
}

// Read implements io.Reader.
func (s stalling) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if oneIn(20) {
		s.counts.stalls.Add(1)
		pause(s.ctx, lag)
	}
	return n, err //nolint:wrapcheck // a Reader's
}

// unreliable is a client whose writes are slow, arrive even if their manager
// has stopped meanwhile, and fail before or after they took effect.
type unreliable struct {
	client.Client

	counts *counts
}

// Patch implements client.Writer.
func (u unreliable) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return u.write(ctx, o, func(ctx context.Context) error { return u.Client.Patch(ctx, o, p, opts...) })
}

// Status implements client.StatusClient.
func (u unreliable) Status() client.SubResourceWriter {
	return unreliableStatus{u.Client.Status(), u}
}

type unreliableStatus struct {
	client.SubResourceWriter

	u unreliable
}

// Patch implements client.SubResourceWriter.
func (s unreliableStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.u.write(ctx, o, func(ctx context.Context) error { return s.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

func (u unreliable) write(ctx context.Context, o client.Object, do func(context.Context) error) error {
	if oneIn(10) {
		u.counts.conflicts.Add(1)
		return apierrors.NewConflict(schema.GroupResource{Resource: "injected"}, o.GetName(), errors.New("injected"))
	}
	ctx = context.WithoutCancel(ctx)
	if oneIn(3) {
		pause(ctx, slowness)
	}
	if err := do(ctx); err != nil {
		return err
	}
	if oneIn(20) {
		u.counts.lost.Add(1)
		return errLost
	}
	return nil
}
