package impersonator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

const (
	// roleLabel is on the ClusterRoles and bindings of this package.
	roleLabel = "infrastructure.cluster.x-k8s.io/elemental-proxy"
	// userAnnotation has the user, usedAnnotation the last day of use.
	userAnnotation = "infrastructure.cluster.x-k8s.io/elemental-proxy-user"
	usedAnnotation = "infrastructure.cluster.x-k8s.io/elemental-proxy-used"
	// maxRoles bounds the ClusterRoles; the one that was not used for longest goes first.
	maxRoles = 500
	// idleTime is how long a ClusterRole stays without use.
	idleTime = 30 * 24 * time.Hour
	// awaitInterval is how often the API server is asked whether it knows a name of a new right, until
	// awaitTimeout.
	awaitInterval = 20 * time.Millisecond
	awaitTimeout  = 5 * time.Second
	day           = time.DateOnly
)

// ensureRight makes the ServiceAccount able to impersonate the identity.
func (a *Account) ensureRight(ctx context.Context, as proxy.Identity) error {
	role := roleName(as)
	last, known := a.rightsAt[role]
	if known && !a.isDue(last) {
		return nil
	}
	if !known {
		if err := a.prune(ctx, role); err != nil {
			return err
		}
	}
	meta := metav1.ObjectMeta{Name: role}
	describe := func(object client.Object) {
		object.SetLabels(merged(object.GetLabels(), roleLabel, "user"))
		object.SetAnnotations(merged(object.GetAnnotations(), userAnnotation, as.User, usedAnnotation, a.clock.Now().UTC().Format(day)))
	}
	clusterRole := &rbacv1.ClusterRole{ObjectMeta: meta}
	written, err := controllerutil.CreateOrUpdate(ctx, a.client, clusterRole, func() error {
		describe(clusterRole)
		clusterRole.Rules = rules(as)
		return nil
	})
	if err != nil {
		return fmt.Errorf("giving the proxy the right to impersonate user %q in the workload cluster: %w", as.User, err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta}
	bound, err := controllerutil.CreateOrUpdate(ctx, a.client, binding, func() error {
		describe(binding)
		if binding.RoleRef.Name == "" {
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		}
		binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
		return nil
	})
	if err != nil {
		return fmt.Errorf("binding the right to impersonate user %q in the workload cluster: %w", as.User, err)
	}
	if written == controllerutil.OperationResultCreated || bound == controllerutil.OperationResultCreated {
		if err := a.await(ctx, as); err != nil {
			return err
		}
	}
	a.rightsAt[role] = a.clock.Now()
	return nil
}

// await waits until the API server knows a new right, which it learns a moment after the role
// was written. Otherwise a user's first request would be denied. Each name is asked for: the role
// of the same user with other groups may permit some of them.
func (a *Account) await(ctx context.Context, as proxy.Identity) error {
	if err := a.awaitName(ctx, "users", as.User); err != nil {
		return err
	}
	for _, group := range as.Groups {
		if err := a.awaitName(ctx, "groups", group); err != nil {
			return err
		}
	}
	return nil
}

func (a *Account) awaitName(ctx context.Context, resource, named string) error {
	err := wait.PollUntilContextTimeout(ctx, awaitInterval, awaitTimeout, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               serviceaccount.MakeUsername(namespace, name),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: resource, Name: named},
		}}
		err := a.client.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the right to impersonate %q of %s in the workload cluster: %w", named, resource, err)
	}
	return nil
}

// rules permit to impersonate one user with these groups, in any combination of them.
func rules(as proxy.Identity) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{as.User}}}
	if len(as.Groups) > 0 {
		// Without names the rule would permit all groups.
		out = append(out, rbacv1.PolicyRule{
			Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"groups"}, ResourceNames: as.Groups,
		})
	}
	return out
}

// prune deletes the ClusterRoles that were idle for long, and the longest idle ones if there
// would be too many with the next.
func (a *Account) prune(ctx context.Context, next string) error {
	list := &rbacv1.ClusterRoleList{}
	if err := a.client.List(ctx, list, client.HasLabels{roleLabel}); err != nil {
		return fmt.Errorf("listing the proxy's roles in the workload cluster: %w", err)
	}
	roles := slices.DeleteFunc(list.Items, func(role rbacv1.ClusterRole) bool { return role.Name == next })
	// A date sorts as text. A role without one is the oldest.
	slices.SortFunc(roles, func(x, y rbacv1.ClusterRole) int {
		return strings.Compare(x.Annotations[usedAnnotation], y.Annotations[usedAnnotation])
	})
	limit := a.clock.Now().Add(-idleTime).UTC().Format(day)
	var failures []error
	for i := range roles {
		if role := &roles[i]; role.Annotations[usedAnnotation] < limit || len(roles)-i >= maxRoles {
			failures = append(failures, a.delete(ctx, role.Name))
		}
	}
	return errors.Join(failures...)
}

// delete deletes a ClusterRole and its binding.
func (a *Account) delete(ctx context.Context, role string) error {
	delete(a.rightsAt, role)
	meta := metav1.ObjectMeta{Name: role}
	for _, object := range []client.Object{&rbacv1.ClusterRoleBinding{ObjectMeta: meta}, &rbacv1.ClusterRole{ObjectMeta: meta}} {
		if err := client.IgnoreNotFound(a.client.Delete(ctx, object)); err != nil {
			return fmt.Errorf("deleting the unused role %s in the workload cluster: %w", role, err)
		}
	}
	return nil
}

// merged returns a map with further keys and values.
func merged(in map[string]string, pairs ...string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, in)
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}
