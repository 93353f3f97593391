package planinput

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// Authority publishes the CA certificates that hosts trust, PEM.
type Authority interface {
	Bundle(ctx context.Context) (string, error)
}

// Reader reads the inputs of plans. It is safe for concurrent use.
type Reader struct {
	client    client.Reader
	clock     clock.PassiveClock
	authority Authority
	url       string
	images    kubevip.ImagePolicy
}

// NewReader returns a Reader from a cache that has the indexes of package index. The
// server URL may be empty.
func NewReader(c client.Reader, now clock.PassiveClock, authority Authority, url string, images kubevip.ImagePolicy) *Reader {
	return &Reader{client: c, clock: now, authority: authority, url: url, images: images}
}

// Site returns the server URLs for a host, that of its registration first, the CA
// certificates, and the agent release and the successor of its registration.
func (r *Reader) Site(ctx context.Context, host *infrav1.ElementalHost) (plan.Site, error) {
	bundle, err := r.authority.Bundle(ctx)
	if err != nil {
		return plan.Site{}, err
	}
	site := plan.Site{TrustBundle: bundle}
	var registration *infrav1.ElementalRegistration
	if from := host.Spec.GrantedFrom; from != nil {
		// A granted host has the registration of its pool: nothing changes on the host.
		pool := &infrav1.ElementalHost{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: from.Namespace, Name: from.Name}, pool, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return plan.Site{}, fmt.Errorf("getting the host in its pool: %w", err)
		}
		if err == nil && pool.IsGrantedTo(host) {
			host = pool
		}
	}
	if ref := host.Spec.RegistrationRef; ref != nil {
		registration = &infrav1.ElementalRegistration{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: ref.Name}, registration, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return plan.Site{}, fmt.Errorf("getting registration: %w", err)
		}
		if apierrors.IsNotFound(err) {
			registration, site.UnknownRegistration = nil, true
		}
	}
	if registration != nil {
		site.Agent, site.Successor = registration.Spec.Agent, enrolment.Successor(registration, r.url)
	}
	for _, url := range []string{enrolment.ServerURL(registration, r.url), enrolment.ServerURL(nil, r.url)} {
		if url != "" && !slices.Contains(site.Servers, url) {
			site.Servers = append(site.Servers, url)
		}
	}
	return site, nil
}
