package planinput

import (
	"context"
	"slices"

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
	registration, isMissing, err := r.registrationOf(ctx, host)
	if err != nil {
		return plan.Site{}, err
	}
	site := plan.Site{TrustBundle: bundle, UnknownRegistration: isMissing}
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

// registrationOf returns the registration of a host, which must not be changed. A granted host
// has that of its pool, because nothing changes on the host. It returns nil if the host has none,
// and also if the registration or the pool does not exist; isMissing is true then.
func (r *Reader) registrationOf(ctx context.Context, host *infrav1.ElementalHost) (found *infrav1.ElementalRegistration, isMissing bool, err error) {
	if from := host.Spec.GrantedFrom; from != nil {
		pool := &infrav1.ElementalHost{}
		exists, err := r.get(ctx, from.Namespace, from.Name, pool)
		if err != nil {
			return nil, false, err
		}
		if !exists || !pool.IsGrantedTo(host) {
			return nil, true, nil
		}
		host = pool
	}
	ref := host.Spec.RegistrationRef
	if ref == nil {
		return nil, false, nil
	}
	registration := &infrav1.ElementalRegistration{}
	exists, err := r.get(ctx, host.Namespace, ref.Name, registration)
	if err != nil || !exists {
		return nil, err == nil, err
	}
	return registration, false, nil
}
