package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// reconcileDelete has the host reset and lets the machine go when it is clean,
// when it is gone, or when it was silent for too long. What decides, in this
// order: a move takes nothing from a host; a fence has it reset, whatever the
// release policy says, and is not waited for; a release policy, or an annotation
// of the cluster, holds the host; else it is reset, once maintenance is over and
// nobody prevents it.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.machine, infrav1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	// `clusterctl move` deletes what it has copied. The machine lives on
	// elsewhere, and so does what runs on its host.
	if _, moved := s.machine.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moved {
		return ctrl.Result{}, r.letGo(ctx, s)
	}
	if err := r.lookAgain(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.releaseHosts(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case !isOf(s.host, s.machine.Spec.HostRef):
		return ctrl.Result{}, r.letGo(ctx, s)
	case s.host.Spec.Claim.Phase == infrav1.ClaimHeld:
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeNormal, infrav1.ResetHeldReason, "Release",
			"Host %s was left as it is; set its spec.claim.phase to Releasing to have it reset", s.host.Name)
		return ctrl.Result{}, r.letGo(ctx, s)
	case hoststatus.IsReset(s.host):
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeNormal, infrav1.ReleasedReason, "Release", "Host %s was reset", s.host.Name)
		return ctrl.Result{}, r.letGo(ctx, s)
	case fenced(s):
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeWarning, infrav1.FencedReason, "Release",
			"Host %s is fenced and not waited for; it is reset before anything else if it returns", s.host.Name)
		return ctrl.Result{}, r.letGo(ctx, s)
	}
	wait, err := r.patience(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if wait == 0 {
		s.silent = true
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeWarning, infrav1.HostSilentReason, "Release",
			"Host %s did not answer in time; it is reset before anything else when it returns", s.host.Name)
		return ctrl.Result{}, r.letGo(ctx, s)
	}
	if wait == forEver {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// lookAgain reads the machine's host past the cache where the cache does not show
// it as the machine's: it may have been bound a moment ago, and a machine let go
// now would leave it bound for ever.
func (r *Reconciler) lookAgain(ctx context.Context, s *scope) error {
	ref := s.machine.Spec.HostRef
	if ref == nil || isOf(s.host, ref) {
		return nil
	}
	live := &infrav1.ElementalHost{}
	switch err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: ref.Name}, live); {
	case err == nil:
		s.host = live
	case apierrors.IsNotFound(err):
		s.host = nil
	default:
		return fmt.Errorf("reading host %s: %w", ref.Name, err)
	}
	return nil
}

// isOf reports whether the host's claim is the machine's, in any phase.
func isOf(host *infrav1.ElementalHost, ref *infrav1.HostReference) bool {
	return host != nil && ref != nil && host.Spec.Claim != nil && host.Spec.Claim.ID == ref.ClaimID
}

// releaseHosts releases or holds the machine's host, and any other that is bound in the
// machine's name under another claim ID: what a manager that was deposed between
// choosing and binding may leave behind.
func (r *Reconciler) releaseHosts(ctx context.Context, s *scope) error {
	named := &infrav1.ElementalHostList{}
	if err := r.Client.List(ctx, named, client.InNamespace(s.machine.Namespace), client.MatchingFields{index.HostByMachine: machineName(s)}); err != nil {
		return fmt.Errorf("listing hosts of the machine: %w", err)
	}
	hosts := make([]*infrav1.ElementalHost, 0, len(named.Items)+1)
	for i := range named.Items {
		if s.host == nil || named.Items[i].Name != s.host.Name {
			hosts = append(hosts, &named.Items[i])
		}
	}
	if s.host != nil {
		hosts = append(hosts, s.host)
	}
	for _, host := range hosts {
		is := host.Spec.Claim
		if is == nil || is.Phase != infrav1.ClaimBound || is.MachineName != machineName(s) || is.ClusterName != clusterName(s) {
			continue
		}
		if another, err := r.isAnothers(ctx, s, host); err != nil {
			return err
		} else if another {
			continue
		}
		if err := r.release(ctx, s, host); err != nil && !errors.Is(err, claim.ErrTaken) {
			return err
		}
	}
	return nil
}

// isAnothers reports whether the host is another ElementalMachine's: that of a
// Machine that was made anew under the name of one whose finalizer was stripped.
func (r *Reconciler) isAnothers(ctx context.Context, s *scope, host *infrav1.ElementalHost) (bool, error) {
	if isOf(host, s.machine.Spec.HostRef) {
		return false, nil
	}
	machines := &infrav1.ElementalMachineList{}
	if err := r.APIReader.List(ctx, machines, client.InNamespace(host.Namespace)); err != nil {
		return false, fmt.Errorf("listing machines that host %s may belong to: %w", host.Name, err)
	}
	return slices.ContainsFunc(machines.Items, func(m infrav1.ElementalMachine) bool {
		return m.UID != s.machine.UID && isOf(host, m.Spec.HostRef)
	}), nil
}

func (r *Reconciler) release(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	hold := false
	if host.Spec.Fence == nil {
		var err error
		if hold, err = r.holds(ctx, s); err != nil {
			return err
		}
	}
	ctrl.LoggerFrom(ctx).Info("Releasing host", "ElementalHost", klog.KObj(host), "hold", hold)
	if hold {
		return claim.Hold(ctx, r.Client, host, host.Spec.Claim.ID, s.machine.Spec.Release.EraseDataDisks)
	}
	return claim.Release(ctx, r.Client, host, host.Spec.Claim.ID, s.machine.Spec.Release.EraseDataDisks)
}

// forEver means that the machine waits for events only.
const forEver = time.Duration(-1)

// patience says how long a deleted machine still waits for its host: forEver
// while the host is connected or in maintenance or a whole site is dark, 0 when
// it has waited long enough.
//
// Time in maintenance does not count; Ready, which is Unknown in it, tells when it
// ended. Only time during which another host of the cluster was connected counts (or
// any, when the cluster is being deleted): a site that lost its line must not
// lose its machines.
func (r *Reconciler) patience(ctx context.Context, s *scope) (time.Duration, error) {
	connection := s.host.Status.Connection
	if s.host.Spec.Maintenance != nil || (connection != nil && connection.State == infrav1.ConnectionConnected) {
		return forEver, nil
	}
	since := s.machine.DeletionTimestamp.Time
	if ready := meta.FindStatusCondition(s.machine.Status.Conditions, infrav1.ReadyCondition); ready != nil {
		if since = later(since, ready.LastTransitionTime.Time); ready.Reason == infrav1.MaintenanceReason {
			since = r.Clock.Now()
		}
	}
	if connection != nil {
		since = later(since, connection.Since.Time)
	}
	if s.cluster != nil && s.cluster.DeletionTimestamp.IsZero() {
		witness, err := r.witness(ctx, s)
		if err != nil || witness == nil {
			return forEver, err
		}
		since = later(since, witness.Time)
	}
	timeout := time.Duration(ptr.Deref(s.machine.Spec.Release.DisconnectedTimeoutSeconds, infrav1.DefaultDisconnectedTimeoutSeconds)) * time.Second
	return max(0, since.Add(timeout).Sub(r.Clock.Now())), nil
}

// witness returns since when another host of the cluster has been connected
// without a break; nil when none is.
func (r *Reconciler) witness(ctx context.Context, s *scope) (*metav1.Time, error) {
	hosts, err := r.list(ctx, s, s.cluster.Name)
	if err != nil {
		return nil, err
	}
	var since *metav1.Time
	for _, host := range hosts {
		c := host.Status.Connection
		if host.Name == s.host.Name || c == nil || c.State != infrav1.ConnectionConnected {
			continue
		}
		if since == nil || c.Since.Before(since) {
			since = &c.Since
		}
	}
	return since, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *Reconciler) letGo(ctx context.Context, s *scope) error {
	ctrl.LoggerFrom(ctx).Info("Removing finalizer")
	return client.IgnoreNotFound(r.patchSpec(ctx, s, "removing finalizer", func(m *infrav1.ElementalMachine) {
		controllerutil.RemoveFinalizer(m, infrav1.MachineFinalizer)
	}))
}
