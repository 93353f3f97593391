package grant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

func hostStatusOf(h *infrav1.ElementalHost) *infrav1.ElementalHostStatus { return &h.Status }

// advance takes the host as far as it can go now.
func (r *Reconciler) advance(ctx context.Context, s *scope, p *pair) error {
	if isMoved(p.pool) || p.granted != nil && isMoved(p.granted) {
		return nil
	}
	if p.phase() == infrav1.HostGrantMoving {
		if err := r.handOver(ctx, s, p); err != nil {
			return err
		}
	}
	if p.phase() == infrav1.HostGrantGranted {
		if err := r.hold(ctx, p); err != nil {
			return err
		}
	}
	if p.phase() == infrav1.HostGrantReturning {
		return r.finish(ctx, p)
	}
	return nil
}

// isMoved reports whether clusterctl deletes the object here, because it is in another management
// cluster now.
func isMoved(o client.Object) bool {
	_, moved := o.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved
}

// hold keeps a granted host, or gives it back when it is free.
func (r *Reconciler) hold(ctx context.Context, p *pair) error {
	if !p.belongs() {
		return nil // a missing object causes nothing
	}
	if !hasFacts(p.granted) && hasFacts(p.pool) {
		if err := r.give(ctx, p.pool, p.granted); err != nil {
			return err
		}
	}
	isDeleted, isReturning, isFree := !p.granted.DeletionTimestamp.IsZero(), p.granted.IsReturning(), p.granted.Spec.Claim == nil
	switch {
	case isDeleted && isFree:
		return r.giveBack(ctx, p)
	case isDeleted:
		return nil
	case isFree && !p.keep:
		return r.remove(ctx, p)
	case isReturning == !p.keep:
		return nil
	default:
		return r.patch(ctx, p.granted, "marking host", func(h *infrav1.ElementalHost) {
			h.Spec.GrantedFrom.Returning = nil
			if !p.keep {
				h.Spec.GrantedFrom.Returning = new(true)
			}
		})
	}
}

// remove deletes a free granted host. It deletes the version that was free: a claim since then
// makes it fail.
func (r *Reconciler) remove(ctx context.Context, p *pair) error {
	if !controllerutil.ContainsFinalizer(p.granted, infrav1.GrantedHostFinalizer) {
		if err := r.patch(ctx, p.granted, "adding the finalizer of host", func(h *infrav1.ElementalHost) {
			controllerutil.AddFinalizer(h, infrav1.GrantedHostFinalizer)
		}); err != nil {
			return err
		}
	}
	err := r.Client.Delete(ctx, p.granted, client.Preconditions{UID: &p.granted.UID, ResourceVersion: &p.granted.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the granted host: %w", err)
	}
	r.record(p.granted, infrav1.HostReturningReason, "The host goes back to namespace %s", p.pool.Namespace)
	return r.giveBack(ctx, p)
}

// giveBack moves the key back to the pool's object by one write. The granted object is read from
// the API server: as it is being deleted and free, its keys don't change.
func (r *Reconciler) giveBack(ctx context.Context, p *pair) error {
	newest := &infrav1.ElementalHost{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(p.granted), newest); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.granted = newest
	if !p.belongs() || newest.DeletionTimestamp.IsZero() || newest.Spec.Claim != nil || isMoved(newest) {
		return nil
	}
	// What the pool's object has after the move of the key is newer than what the granted one has.
	if err := r.patchFacts(ctx, p.pool, forgetFacts); err != nil || !p.belongs() {
		return err
	}
	return r.patch(ctx, p.pool, "taking back host", func(h *infrav1.ElementalHost) {
		h.Spec.Identity = newest.Spec.Identity.DeepCopy()
		bar(h, newest)
		h.Spec.GrantedTo.Phase = infrav1.HostGrantReturning
	})
}

// finish removes the granted object once the pool's object knows all that it says, and then offers
// the host in the pool. It does not wait for finalizers of others: the object has no key any more.
func (r *Reconciler) finish(ctx context.Context, p *pair) error {
	from := *p.pool.Spec.GrantedTo
	granted, err := reconcile.Get(ctx, r.APIReader, from.Namespace, from.Name, &infrav1.ElementalHost{})
	if err != nil {
		return fmt.Errorf("reading the granted host: %w", err)
	}
	if p.granted = granted; p.belongs() {
		if err := r.dismiss(ctx, p); err != nil {
			return err
		}
	}
	if err := r.patch(ctx, p.pool, "ending the grant of host", func(h *infrav1.ElementalHost) {
		h.Spec.GrantedTo = nil
		delete(h.Annotations, clusterctlv1.BlockMoveAnnotation)
	}); err != nil {
		return err
	}
	r.record(p.pool, infrav1.HostReturnedReason, "The host is back from namespace %s", from.Namespace)
	return nil
}

// dismiss takes over the facts of the granted object, and deletes it. The finalizer goes last: while
// it is there, a reconcile that was interrupted takes over the facts that are still missing.
func (r *Reconciler) dismiss(ctx context.Context, p *pair) error {
	if p.granted.Spec.Lock != nil && p.pool.Spec.Lock == nil {
		if err := r.patch(ctx, p.pool, "locking host", func(h *infrav1.ElementalHost) { bar(h, p.granted) }); err != nil {
			return err
		}
	}
	has := controllerutil.ContainsFinalizer(p.granted, infrav1.GrantedHostFinalizer)
	if has && hasFacts(p.granted) {
		if err := r.give(ctx, p.granted, p.pool); err != nil {
			return err
		}
	}
	if p.granted.DeletionTimestamp.IsZero() {
		err := r.Client.Delete(ctx, p.granted, client.Preconditions{UID: &p.granted.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the granted host: %w", err)
		}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(p.granted), p.granted); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if !has {
		return nil
	}
	err := r.patch(ctx, p.granted, "removing the finalizer of host", func(h *infrav1.ElementalHost) {
		controllerutil.RemoveFinalizer(h, infrav1.GrantedHostFinalizer)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (r *Reconciler) patch(ctx context.Context, host *infrav1.ElementalHost, doing string, change func(*infrav1.ElementalHost)) error {
	return reconcile.PatchSpec(ctx, r.Client, host, hostStatusOf, doing+" "+host.Name, change)
}

// give gives the facts of one object to the other.
func (r *Reconciler) give(ctx context.Context, from, to *infrav1.ElementalHost) error {
	return r.patchFacts(ctx, to, func(h *infrav1.ElementalHost) { addFacts(from, h) })
}

// patchFacts changes the facts of a host, and reads it again.
func (r *Reconciler) patchFacts(ctx context.Context, host *infrav1.ElementalHost, change func(*infrav1.ElementalHost)) error {
	before := host.Status.DeepCopy()
	change(host)
	hoststatus.Update(host, metav1.NewTime(r.Clock.Now()))
	if _, err := reconcile.PatchStatus(ctx, r.Client, host, hostStatusOf, before); err != nil {
		return err
	}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(host), host); err != nil {
		return fmt.Errorf("reading host %s: %w", host.Name, err)
	}
	return nil
}

// record records an Event on a host.
func (r *Reconciler) record(host *infrav1.ElementalHost, reason, format string, args ...any) {
	r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, reason, "Grant", format, args...)
}
