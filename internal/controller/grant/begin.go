package grant

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
)

// take grants hosts until the grant has its count. The hosts are read from the API server, so that
// a cache that is late can't make it exceed the count.
func (r *Reconciler) take(ctx context.Context, s *scope) error {
	if s.refused != "" || len(s.pairs) >= count(s.grant) {
		return nil
	}
	grantable := func(host *infrav1.ElementalHost) bool { return isGrantable(s, host) }
	cached, err := reconcile.ListHosts(ctx, r.Client, s.grant.Namespace, r.WatchFilter)
	if err != nil || !slices.ContainsFunc(cached, grantable) {
		return err
	}
	hosts, err := reconcile.ListHosts(ctx, r.APIReader, s.grant.Namespace, r.WatchFilter)
	if err != nil {
		return err
	}
	left := count(s.grant)
	for _, host := range hosts {
		if to := host.Spec.GrantedTo; to != nil && to.GrantName == s.grant.Name {
			left--
		}
	}
	for _, host := range hosts {
		if left <= 0 || s.refused != "" {
			return nil
		}
		if !grantable(host) {
			continue
		}
		p := &pair{pool: host, keep: true}
		if err := r.begin(ctx, s, p); err != nil {
			return err
		}
		s.pairs = append(s.pairs, p)
		left--
		if err := r.advance(ctx, s, p); err != nil {
			return err
		}
	}
	return nil
}

// begin takes the host out of the pool: from this write on nobody can claim it there. Requests that
// have ended are forgotten, because the host would not know them any more when it returns.
func (r *Reconciler) begin(ctx context.Context, s *scope, p *pair) error {
	name := p.pool.Name
	taken, err := reconcile.Get(ctx, r.APIReader, s.grant.Spec.Namespace, name, &infrav1.ElementalHost{})
	if err != nil {
		return fmt.Errorf("looking for the name of the granted host: %w", err)
	}
	if taken != nil {
		name = hostname.WithSuffix(name, p.pool.Spec.HostID)
	}
	ctrl.LoggerFrom(ctx).Info("Granting host", "hostName", p.pool.Name, "namespace", s.grant.Spec.Namespace)
	return r.patch(ctx, p.pool, "granting host", func(h *infrav1.ElementalHost) {
		h.Spec.GrantedTo = &infrav1.HostGrantedTo{GrantName: s.grant.Name, Namespace: s.grant.Spec.Namespace, Name: name, Phase: infrav1.HostGrantMoving}
		h.Spec.Reboot, h.Spec.OSUpgrade = nil, nil
		if h.Annotations == nil {
			h.Annotations = map[string]string{}
		}
		h.Annotations[clusterctlv1.BlockMoveAnnotation] = ""
	})
}

// handOver creates the granted object, and then moves the key to it by one write. Before that
// write nobody can claim the granted object, because the machine reports nothing as that object:
// it can be removed at any time.
func (r *Reconciler) handOver(ctx context.Context, s *scope, p *pair) error {
	if !p.keep || p.pool.Spec.Lock != nil || p.pool.Spec.Fence != nil || p.pool.Spec.Approval != infrav1.ApprovalApproved {
		return r.retreat(ctx, p)
	}
	err := r.ensureGranted(ctx, p)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		s.refused = fmt.Sprintf("Namespace %s takes no hosts: %v. Create it, or correct its quota", s.grant.Spec.Namespace, err)
		return r.retreat(ctx, p)
	case err != nil:
		return err
	}
	if err := r.patch(ctx, p.pool, "handing over host", func(h *infrav1.ElementalHost) {
		h.Spec.GrantedTo.Phase = infrav1.HostGrantGranted
		delete(h.Annotations, clusterctlv1.BlockMoveAnnotation)
	}); err != nil {
		return err
	}
	r.record(p.pool, infrav1.HostGrantedReason, "The host is ElementalHost %s in namespace %s now", p.granted.Name, p.granted.Namespace)
	r.record(p.granted, infrav1.HostReceivedReason, "Namespace %s has granted the host", p.pool.Namespace)
	return nil
}

// retreat ends a grant whose key has not moved.
func (r *Reconciler) retreat(ctx context.Context, p *pair) error {
	return r.patch(ctx, p.pool, "keeping host", func(h *infrav1.ElementalHost) { h.Spec.GrantedTo.Phase = infrav1.HostGrantReturning })
}

// errNameTaken ends a reconcile.
var errNameTaken = errors.New("an ElementalHost of the name that only this host can have exists in the other namespace: delete it")

// ensureGranted makes the granted object have the identity of the pool's.
func (r *Reconciler) ensureGranted(ctx context.Context, p *pair) error {
	to := p.pool.Spec.GrantedTo
	is, err := reconcile.Get(ctx, r.APIReader, to.Namespace, to.Name, &infrav1.ElementalHost{})
	if err != nil {
		return fmt.Errorf("reading the granted host: %w", err)
	}
	if is == nil {
		is = newGranted(p.pool)
		if err := r.Client.Create(ctx, is); err != nil {
			return fmt.Errorf("creating the granted host: %w", err)
		}
	}
	if p.granted = is; !p.belongs() || !is.DeletionTimestamp.IsZero() {
		other := hostname.WithSuffix(p.pool.Name, p.pool.Spec.HostID)
		if to.Name == other {
			return fmt.Errorf("granting host %s: %w", p.pool.Name, errNameTaken)
		}
		if err := r.patch(ctx, p.pool, "renaming host", func(h *infrav1.ElementalHost) { h.Spec.GrantedTo.Name = other }); err != nil {
			return err
		}
		return r.ensureGranted(ctx, p)
	}
	if equality.Semantic.DeepEqual(p.pool.Spec.Identity, is.Spec.Identity) {
		return nil
	}
	return r.patch(ctx, is, "completing host", func(h *infrav1.ElementalHost) { h.Spec.Identity = p.pool.Spec.Identity.DeepCopy() })
}
