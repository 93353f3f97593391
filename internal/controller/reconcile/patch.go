package reconcile

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object is a pointer to a generated API type.
type Object[T any] interface {
	*T
	client.Object
	DeepCopy() *T
}

// PatchSpec applies change to the object's spec or metadata and writes it with an
// optimistic lock. status returns the object's status; PatchSpec keeps the one in
// memory, because the reconcile may have changed it already. doing begins the text
// of an error. After an error the object is as it was.
func PatchSpec[T, S any, O Object[T]](ctx context.Context, c client.Client, object O, status func(O) *S, doing string, change func(O)) error {
	after := O(object.DeepCopy())
	change(after)
	if err := c.Patch(ctx, after, client.MergeFromWithOptions(O(object.DeepCopy()), client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	*status(after) = *status(object)
	*object = *after
	return nil
}

// PatchStatus writes the object's status with an optimistic lock, in one request,
// unless it equals before. It reports whether it wrote. An object that no longer
// exists is not an error. The object in memory stays unchanged.
func PatchStatus[T, S any, O Object[T]](ctx context.Context, c client.Client, object O, status func(O) *S, before *S) (written bool, _ error) {
	if equality.Semantic.DeepEqual(before, status(object)) {
		return false, nil
	}
	base, after := O(object.DeepCopy()), O(object.DeepCopy())
	*status(base) = *before
	err := c.Status().Patch(ctx, after, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("writing status: %w", err)
	}
	return err == nil, nil
}

// SetConditions sets the conditions in list. It fills in the generation, and the
// time of those whose status changes.
func SetConditions(list *[]metav1.Condition, generation int64, now time.Time, conditions ...metav1.Condition) {
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(now)
		c.ObservedGeneration = generation
		meta.SetStatusCondition(list, c)
	}
}
