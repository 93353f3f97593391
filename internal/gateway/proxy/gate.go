package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/review"
)

// Gate authenticates and authorizes the caller of a request for a workload cluster, and derives
// the caller's Identity there. Each request of a user passes it first.
type Gate struct {
	// Authenticator knows the users of the management cluster. It may remove credentials
	// from the request. Its error is review.ErrUnavailable if it could not ask.
	Authenticator authenticator.Request
	// Authorizer knows their rights in the management cluster.
	Authorizer authorizer.Authorizer
	// Subresource of clusters on which the caller needs the verb create.
	Subresource string
}

// Admit returns who the caller of a request is in workload clusters, if the caller is let in
// to this one. An error is for Refuse.
func (g Gate) Admit(r *http.Request, cluster types.NamespacedName) (Identity, error) {
	u, err := g.authenticate(r)
	if err != nil {
		return Identity{}, err
	}
	return g.admit(r, u, cluster)
}

func (g Gate) authenticate(r *http.Request) (user.Info, error) {
	response, ok, err := g.Authenticator.AuthenticateRequest(r)
	switch {
	case errors.Is(err, review.ErrUnavailable):
		// Not 401: clients would throw their credentials away.
		return nil, unavailable(fmt.Errorf("authenticating the caller: %w", err))
	case err != nil || !ok || response.User == nil:
		return nil, unauthorized()
	}
	return response.User, nil
}

// admit is Admit for a caller who is authenticated.
func (g Gate) admit(r *http.Request, u user.Info, cluster types.NamespacedName) (Identity, error) {
	if err := checkHeader(r); err != nil {
		return Identity{}, g.forbidden(err)
	}
	as, err := identityOf(u)
	if err != nil {
		return Identity{}, g.forbidden(err)
	}
	return as, g.authorize(r.Context(), u, cluster)
}

// authorize demands the verb create on the cluster's subresource, whatever the request's
// method is: requests that are upgraded are GETs and change things all the same.
func (g Gate) authorize(ctx context.Context, u user.Info, cluster types.NamespacedName) error {
	decision, _, err := g.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: "create", APIGroup: clusterv1.GroupVersion.Group, APIVersion: clusterv1.GroupVersion.Version,
		Resource: "clusters", Subresource: g.Subresource, Namespace: cluster.Namespace, Name: cluster.Name, ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return unavailable(fmt.Errorf("asking the management cluster for the rights of user %q: %w", u.GetName(), err))
	default:
		return g.forbidden(fmt.Errorf("user %q may not create clusters/%s of cluster %s in namespace %s",
			u.GetName(), g.Subresource, cluster.Name, cluster.Namespace))
	}
}

func (g Gate) forbidden(err error) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: "clusters/" + g.Subresource}, "", err)
}
