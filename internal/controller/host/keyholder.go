package host

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// expectedKey returns the fingerprint of the key that the host has or was declared for;
// blank for none.
func expectedKey(host *infrav1.ElementalHost) string {
	id := host.Spec.Identity
	switch {
	case id == nil:
		return ""
	case id.KeyFingerprint != "":
		return id.KeyFingerprint
	case id.Match != nil:
		return id.Match.KeyFingerprint
	default:
		return ""
	}
}

// holdsKey reports whether the machine has proved to have the host's key.
func holdsKey(host *infrav1.ElementalHost) bool {
	key := expectedKey(host)
	return key != "" && host.Status.KeyFingerprint == key && host.Spec.Identity.KeyFingerprint == key
}

// setKeyAccepted sets the condition KeyAccepted to False while the machine with the host's
// key is another ElementalHost. The message does not name a host of another namespace.
func (r *Reconciler) setKeyAccepted(ctx context.Context, host *infrav1.ElementalHost, now metav1.Time) error {
	holder, err := r.otherHolder(ctx, host)
	if err != nil {
		return err
	}
	if holder == nil {
		meta.RemoveStatusCondition(&host.Status.Conditions, infrav1.KeyAcceptedCondition)
		return nil
	}
	where := "an ElementalHost of another namespace"
	if holder.Namespace == host.Namespace {
		where = "ElementalHost " + holder.Name
	}
	meta.SetStatusCondition(&host.Status.Conditions, metav1.Condition{
		Type: infrav1.KeyAcceptedCondition, Status: metav1.ConditionFalse, Reason: infrav1.DeclaredElsewhereReason,
		Message: fmt.Sprintf("The machine with the key %s is %s. Delete this ElementalHost, or delete the other one first "+
			"and give the machine a registration token of this namespace", expectedKey(host), where),
		ObservedGeneration: host.Generation, LastTransitionTime: now,
	})
	return nil
}

// otherHolder returns the other host that the machine with the host's key has proved to be,
// or nil.
func (r *Reconciler) otherHolder(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	key := expectedKey(host)
	if key == "" || holdsKey(host) || host.Spec.GrantedTo != nil {
		return nil, nil
	}
	hosts := &infrav1.ElementalHostList{}
	if err := r.Client.List(ctx, hosts, client.MatchingFields{index.HostByKey: key}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing hosts with the key: %w", err)
	}
	for i := range hosts.Items {
		if other := &hosts.Items[i]; other.UID != host.UID && expectedKey(other) == key && holdsKey(other) && !other.IsGrantedTo(host) {
			return other, nil
		}
	}
	return nil, nil
}

// holderChanged selects the events after which other hosts with the same key may be
// accepted or no longer be.
func holderChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*infrav1.ElementalHost)
			after, ok2 := e.ObjectNew.(*infrav1.ElementalHost)
			return ok1 && ok2 && (holdsKey(before) != holdsKey(after) || expectedKey(before) != expectedKey(after))
		},
		CreateFunc:  func(e event.CreateEvent) bool { return isHolder(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return isHolder(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func isHolder(o client.Object) bool {
	host, ok := o.(*infrav1.ElementalHost)
	return ok && holdsKey(host)
}

// hostsOfKey returns the other hosts that have the host's key or were declared for it.
func (r *Reconciler) hostsOfKey(ctx context.Context, object client.Object) []ctrl.Request {
	host, ok := object.(*infrav1.ElementalHost)
	if !ok || expectedKey(host) == "" {
		return nil
	}
	var requests []ctrl.Request
	for _, field := range []string{index.HostByKey, index.HostByMatchedKey} {
		hosts := &infrav1.ElementalHostList{}
		if err := r.Client.List(ctx, hosts, client.MatchingFields{field: expectedKey(host)}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing hosts with the same key")
			return nil
		}
		for i := range hosts.Items {
			if hosts.Items[i].UID != host.UID {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])})
			}
		}
	}
	return requests
}
