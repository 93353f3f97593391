package proxy

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/review"
)

// judgeInterval is how often the caller of an open request is authenticated and authorized
// again.
const judgeInterval = 30 * time.Second

// errRightsTaken ends a request whose caller has lost the right to it.
var errRightsTaken = errors.New("the caller may not access the cluster any longer")

// judge authenticates and authorizes the caller of an open request again and again, until the
// context ends. It cancels the context once the caller is refused or is somebody else. A
// management cluster that can't be asked ends nothing: people need their sessions most then.
func (p *Proxy) judge(ctx context.Context, cancel context.CancelCauseFunc, credentials *http.Request, as Identity, cluster types.NamespacedName) {
	ticker := p.o.Clock.NewTicker(judgeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if p.isRefused(ctx, credentials, as, cluster) {
			p.metrics.ended.Inc()
			cancel(errRightsTaken)
			return
		}
	}
}

func (p *Proxy) isRefused(ctx context.Context, credentials *http.Request, as Identity, cluster types.NamespacedName) bool {
	response, ok, err := p.gate.Authenticator.AuthenticateRequest(credentials.Clone(ctx))
	switch {
	case errors.Is(err, review.ErrUnavailable):
		return false
	case err != nil || !ok:
		return true
	}
	if now, err := identityOf(response.User); err != nil || !reflect.DeepEqual(now, as) {
		return true
	}
	return apierrors.IsForbidden(p.gate.authorize(ctx, response.User, cluster))
}
