package review

import (
	"context"
	"crypto/sha256"
	"encoding/json"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer returns an authorizer of requests for resources. It allows, or has no opinion.
// Its errors are ErrUnavailable.
func Authorizer(o Options) authorizer.Authorizer {
	return &rights{asker: newAsker(o.Client), kept: cache.NewLRUExpireCacheWithClock(maxKept, o.Clock)}
}

// rights implements authorizer.Authorizer.
type rights struct {
	asker

	kept *cache.LRUExpireCache
}

// Authorize implements authorizer.Authorizer.
func (r *rights) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
			Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
		},
	}}
	if u := a.GetUser(); u != nil {
		review.Spec.User, review.Spec.UID, review.Spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
		review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		for name, values := range u.GetExtra() {
			review.Spec.Extra[name] = values
		}
	}
	// Marshalling strings can't fail.
	raw, _ := json.Marshal(review.Spec)
	key := sha256.Sum256(raw)
	kept, ok := r.kept.Get(key)
	if !ok {
		if err := r.ask(ctx, review); err != nil {
			return authorizer.DecisionNoOpinion, "", err
		}
		kept = review.Status.Allowed && !review.Status.Denied
		r.kept.Add(key, kept, keep)
	}
	if allowed, _ := kept.(bool); allowed {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
