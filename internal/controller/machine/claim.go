package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

const (
	// waitingDelay is the interval at which a machine without a host looks for one.
	// A host that becomes free wakes the machine earlier. The interval only covers
	// lost wake-ups: a woken machine may be deleted before it claims the host.
	waitingDelay = 2 * time.Minute
	// nominatedDelay is for machines whose available hosts are all nominated for
	// other machines; some of those claims may still fail.
	nominatedDelay = time.Second
	// bindAttempts bounds the retries after conflicts with writes that do not change
	// the claim.
	bindAttempts = 5
)

// reconcileClaim binds a host to the machine. bound is false as long as no host is
// bound.
func (r *Reconciler) reconcileClaim(ctx context.Context, s *scope) (bound bool, _ ctrl.Result, _ error) {
	if s.machine.Spec.HostRef != nil {
		bound, err := r.bindRecordedHost(ctx, s)
		if err != nil || bound || s.hostLost != "" {
			return bound, ctrl.Result{}, err
		}
		s.host = nil
	}
	if !wanted(s).MayClaim() {
		return false, ctrl.Result{}, nil
	}
	host, release, err := r.chooser().choose(ctx, s)
	if err != nil {
		return false, ctrl.Result{}, err
	}
	if host == nil {
		if s.noHost == "" {
			return false, ctrl.Result{RequeueAfter: nominatedDelay}, nil
		}
		return false, ctrl.Result{RequeueAfter: waitingDelay}, r.replaceInOtherDomain(ctx, s)
	}
	if err := r.claimHost(ctx, s, host); err != nil {
		release()
		if errors.Is(err, claim.ErrTaken) {
			return false, ctrl.Result{RequeueAfter: reconcile.ConflictDelay}, nil
		}
		return false, ctrl.Result{}, err
	}
	s.waiting = false
	return true, ctrl.Result{}, nil
}

// bindRecordedHost binds the host recorded in spec.hostRef, if it is not bound
// already. It reports false without an error and without s.hostLost if another host
// must be chosen.
func (r *Reconciler) bindRecordedHost(ctx context.Context, s *scope) (bound bool, _ error) {
	ref := s.machine.Spec.HostRef
	if isBoundTo(s.host, ref) {
		return true, nil
	}
	// The cache may be stale, so the API server decides.
	live := &infrav1.ElementalHost{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: ref.Name}, live)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading host %s: %w", ref.Name, err)
	}
	missing := apierrors.IsNotFound(err)
	if !missing {
		s.host = live
		if isBoundTo(live, ref) {
			return true, nil
		}
	}
	switch {
	case missing:
		// The host may have run the bootstrap data, or may still run it. The same data
		// on a second host would make two Nodes, or two clusters, of one Machine.
		s.hostLost = fmt.Sprintf("ElementalHost %s does not exist any more; delete the Machine to have it replaced", ref.Name)
		return false, nil
	case s.machine.Spec.ProviderID != "":
		s.hostLost = fmt.Sprintf("ElementalHost %s is not this machine's any more; delete the Machine to have it replaced", ref.Name)
		return false, nil
	case !wanted(s).MayClaim():
		return false, nil
	}
	current, err := choiceIsCurrent(ctx, r.APIReader, s.machine)
	if err != nil || !current {
		return false, err
	}
	switch err := r.bind(ctx, s, live); {
	case errors.Is(err, claim.ErrTaken):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// choiceIsCurrent reads the machine past the cache and reports whether it still has
// the same spec.hostRef and is not being deleted. Another manager may have chosen
// another host or removed the finalizer; a host bound after that would be lost.
func choiceIsCurrent(ctx context.Context, c client.Reader, machine *infrav1.ElementalMachine) (bool, error) {
	live := &infrav1.ElementalMachine{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(machine), live); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading machine %s again: %w", machine.Name, err)
	}
	ref := live.Spec.HostRef
	return live.DeletionTimestamp.IsZero() && ref != nil && *ref == *machine.Spec.HostRef, nil
}

func isBoundTo(host *infrav1.ElementalHost, ref *infrav1.HostReference) bool {
	return host != nil && host.Spec.Claim != nil && host.Spec.Claim.ID == ref.ClaimID && host.Spec.Claim.Phase == infrav1.ClaimBound
}

// isClaimedBy reports whether the host's claim is the one in ref, in any phase.
func isClaimedBy(host *infrav1.ElementalHost, ref *infrav1.HostReference) bool {
	return host != nil && ref != nil && host.Spec.Claim != nil && host.Spec.Claim.ID == ref.ClaimID
}

// claimHost records the choice on the machine and then binds the host.
func (r *Reconciler) claimHost(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	if host.Spec.Claim != nil {
		// A reserved host. When the endpoint's host is exchanged, the Machine made for
		// the former endpoint is deleted, and the cache may not show that yet.
		owner := &clusterv1.Machine{}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.owner), owner); err != nil {
			return fmt.Errorf("reading Machine %s: %w", s.owner.Name, err)
		}
		if !owner.DeletionTimestamp.IsZero() {
			return fmt.Errorf("claiming host %s for a Machine that is being deleted: %w", host.Name, claim.ErrTaken)
		}
	}
	ctrl.LoggerFrom(ctx).Info("Claiming host", "ElementalHost", klog.KObj(host))
	err := r.patchSpec(ctx, s, "recording the choice of host "+host.Name, func(m *infrav1.ElementalMachine) {
		m.Spec.HostRef = &infrav1.HostReference{Name: host.Name, ClaimID: string(uuid.NewUUID())}
		blockMove(m)
	})
	if err != nil {
		return err
	}
	return r.bind(ctx, s, host)
}

// bind binds the host to the recorded choice. It retries after conflicts with writes
// that do not change the claim, such as an agent's report.
func (r *Reconciler) bind(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	constraints, ref := wanted(s).Constraints(ctx, r.Selectors), s.machine.Spec.HostRef
	var err error
	for range bindAttempts {
		if reason, ok := constraints.Available(host); !ok && !isBoundTo(host, ref) {
			return fmt.Errorf("claiming host %s, which is now %s: %w", host.Name, reason, claim.ErrTaken)
		}
		var adoption *infrav1.ClaimAdoption
		if adoption, err = adoptionOf(ctx, r.APIReader, s, host); err != nil {
			return err
		}
		err = claim.Bind(ctx, r.Client, host, infrav1.HostClaim{
			ID: ref.ClaimID, ClusterName: s.cluster.Name, MachineName: machineName(s), Role: role(s), Adoption: adoption,
		}, bundleFor(s, host))
		if err == nil {
			return r.confirm(ctx, s, host)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		// Read the host first, then the machine: a choice that another manager replaced
		// in between is noticed here, or else the host's resourceVersion is too old.
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(host), host); err != nil {
			return fmt.Errorf("reading host %s again: %w", host.Name, err)
		}
		if current, err := choiceIsCurrent(ctx, r.APIReader, s.machine); err != nil {
			return err
		} else if !current {
			return fmt.Errorf("claiming host %s, which the machine no longer refers to: %w", host.Name, claim.ErrTaken)
		}
	}
	return err
}

// role returns the machine's role in its cluster. The first control-plane machine
// initializes the control plane; others are made only after that.
func role(s *scope) infrav1.ClaimRole {
	switch {
	case s.owner == nil || !util.IsControlPlaneMachine(s.owner):
		return infrav1.RoleWorker
	case ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false):
		return infrav1.RoleControlPlane
	default:
		return infrav1.RoleInitialControlPlane
	}
}

// confirm checks, after the host was bound, that the machine still refers to it, and
// releases the host otherwise. Another manager may have removed the machine's
// finalizer before the host was bound, and did not see this host.
func (r *Reconciler) confirm(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	current, err := choiceIsCurrent(ctx, r.APIReader, s.machine)
	if err != nil {
		return err
	}
	if !current {
		if err := claim.Release(ctx, r.Client, host, s.machine.Spec.HostRef.ClaimID, s.machine.Spec.Release.EraseDataDisks); err != nil {
			return err
		}
		return fmt.Errorf("claiming host %s for a machine that is being deleted or has another host: %w", host.Name, claim.ErrTaken)
	}
	s.host = host
	r.Recorder.Eventf(s.machine, host, corev1.EventTypeNormal, infrav1.HostClaimedReason, "Claim", "Claimed host %s", host.Name)
	return nil
}
