package reconcile

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
)

// ConflictDelay lets the cache catch up with the write of another client.
const ConflictDelay = 100 * time.Millisecond

// RequeueConflict returns the arguments, but turns a conflict into a requeue after
// ConflictDelay: another client changed the object, or the cache is stale.
func RequeueConflict(result ctrl.Result, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: ConflictDelay}, nil
	}
	return result, err
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
