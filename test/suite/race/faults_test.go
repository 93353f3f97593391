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
	// maxStall is the maximum duration of a stalled watch, and thus of a stale cache.
	maxStall = 400 * time.Millisecond
	// maxWriteDelay is the maximum delay of a write.
	maxWriteDelay = 100 * time.Millisecond
)

var errLost = errors.New("the response was lost")

// Every conflictEvery-th write meets a conflict, and the response to every lostEvery-th
// successful one is lost.
const (
	conflictEvery = 10
	lostEvery     = 20
)

// counts counts writes and injected faults.
type counts struct {
	writes, written         atomic.Int64
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

// withStaleCache returns a configuration whose clients' watches stall at random, independently of
// each other, so that caches are stale and events late.
func withStaleCache(config *rest.Config, n *counts) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return laggingTransport{next, n} })
	return config
}

type laggingTransport struct {
	http.RoundTripper

	counts *counts
}

// RoundTrip implements http.RoundTripper.
func (l laggingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") == "true" {
		response.Body = stallingBody{response.Body, request.Context(), l.counts}
	}
	return response, err // a RoundTripper must not change errors
}

type stallingBody struct {
	io.ReadCloser

	ctx    context.Context // the context of the request
	counts *counts
}

// Read implements io.Reader.
func (s stallingBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if oneIn(20) {
		s.counts.stalls.Add(1)
		pause(s.ctx, maxStall)
	}
	return n, err // a Reader must not change io.EOF
}

// unreliable is a client whose writes are slow, continue after their manager has stopped, and may
// return an error before or after they took effect.
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
	if u.counts.writes.Add(1)%conflictEvery == 0 {
		u.counts.conflicts.Add(1)
		return apierrors.NewConflict(schema.GroupResource{Resource: "injected"}, o.GetName(), errors.New("injected"))
	}
	ctx = context.WithoutCancel(ctx)
	if oneIn(3) {
		pause(ctx, maxWriteDelay)
	}
	if err := do(ctx); err != nil {
		return err
	}
	if u.counts.written.Add(1)%lostEvery == 0 {
		u.counts.lost.Add(1)
		return errLost
	}
	return nil
}
