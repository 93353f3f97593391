package hooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// maxRequestBytes is above any request for a Machine.
	maxRequestBytes = 20 << 20
	// maxConcurrent bounds the memory of all requests together.
	maxConcurrent = 8
	// timeout is for one call. Cluster API waits as long.
	timeout = runtimehooksv1.DefaultHandlersTimeoutSeconds * time.Second
)

// response is a pointer to a response of type T.
type response[T any] interface {
	*T
	runtimehooksv1.ResponseObject
}

// server serves hooks.
type server struct {
	// slots bounds the requests that are served at once.
	slots chan struct{}
}

// serve returns the handler of a hook. The status of its answer is Failure if hook returns an
// error, and Success otherwise; that of HTTP is always 200, because Cluster API passes on no
// other answers.
func serve[Q, T any, A response[T]](s *server, hook func(context.Context, *Q, A) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		answer := A(new(T))
		if err := call(ctx, s, w, r, hook, answer); err != nil {
			answer = new(T)
			answer.SetStatus(runtimehooksv1.ResponseStatusFailure)
			answer.SetMessage(err.Error())
		} else {
			answer.SetStatus(runtimehooksv1.ResponseStatusSuccess)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Writing the answer of a hook", "path", r.URL.Path, "err", err.Error())
		}
	})
}

// call reads the request and calls the hook, when there is a slot.
func call[Q, T any, A response[T]](
	ctx context.Context, s *server, w http.ResponseWriter, r *http.Request, hook func(context.Context, *Q, A) error, answer A,
) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for other calls: %w", context.Cause(ctx))
	}
	// A slow sender must not keep a slot. Not every writer has deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	request := new(Q)
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes)).Decode(request); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	return hook(ctx, request, answer)
}

// path returns the path that Cluster API calls for a hook; name is that of its handler.
func path(hook runtimecatalog.Hook, name string) string {
	return runtimecatalog.GVHToPath(groupVersionHook(hook), name)
}

func groupVersionHook(hook runtimecatalog.Hook) runtimecatalog.GroupVersionHook {
	gv := runtimehooksv1.GroupVersion
	return runtimecatalog.GroupVersionHook{Group: gv.Group, Version: gv.Version, Hook: runtimecatalog.HookName(hook)}
}
