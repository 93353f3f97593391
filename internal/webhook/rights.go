package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
)

// Resources of the kinds whose changes need verbs.
const (
	hostResource     = "elementalhosts"
	machineResource  = "elementalmachines"
	templateResource = "elementalmachinetemplates"
	restoreResource  = "elementaletcdrestores"
)

// Reviewer creates SubjectAccessReviews, by which the API server says what a user may do.
type Reviewer interface {
	Create(ctx context.Context, review client.Object, opts ...client.CreateOption) error
}

// requireVerbs denies the request unless its user has the verbs on the object. It also denies the
// request if it can't find out. Objects that are being deleted are no exception: what removes a
// finalizer changes none of the fields that need a verb.
func requireVerbs(ctx context.Context, reviews Reviewer, resource string, obj client.Object, verbs []rights.Verb) error {
	return requireVerbsIn(ctx, reviews, obj.GetNamespace(), resource, obj, verbs)
}

// requireVerbsIn is requireVerbs for a namespace that need not be the object's.
func requireVerbsIn(ctx context.Context, reviews Reviewer, namespace, resource string, obj client.Object, verbs []rights.Verb) error {
	if len(verbs) == 0 {
		return nil
	}
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the admission request: %w", err))
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range req.UserInfo.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	for _, verb := range verbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Name: obj.GetName(), Verb: string(verb),
				Group: infrav1.GroupVersion.Group, Version: infrav1.GroupVersion.Version, Resource: resource,
			},
		}}
		if err := reviews.Create(ctx, review); err != nil {
			return apierrors.NewServiceUnavailable(fmt.Sprintf(
				"asking the API server whether you have the verb %s on %s: %v; nothing was changed, try again", verb, resource, err))
		}
		if !review.Status.Allowed || review.Status.Denied {
			return apierrors.NewForbidden(infrav1.GroupVersion.WithResource(resource).GroupResource(), obj.GetName(), missing(verb, resource, namespace))
		}
	}
	return nil
}

// missing says which verb a user lacks, and where it comes from.
func missing(verb rights.Verb, resource, namespace string) error {
	return errors.New("this change needs the verb " + string(verb) + " on " + resource + " in namespace " + namespace +
		"; it is in the ClusterRole " + strings.Join(verb.Roles(), " and in "))
}
