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
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

const (
	// conflictDelay lets the cache catch up with a write that won against ours.
	conflictDelay = 100 * time.Millisecond
	// waitingDelay is how often a machine without a host looks by itself. Hosts
	// that become free wake it; this only catches what no event tells, such as
	// a woken machine that was deleted before it could take the host.
	waitingDelay = 2 * time.Minute
	// nominatedDelay is for machines that found all suitable hosts about to be
	// claimed by others; some of those claims may yet fail.
	nominatedDelay = time.Second
	// bindAttempts bounds retries against harmless writes to the same host.
	bindAttempts = 5
)

// claim sees to it that a host is bound to the machine. bound is false while
// there is none.
func (r *Reconciler) claim(ctx context.Context, s *scope) (bound bool, _ ctrl.Result, _ error) {
	if s.machine.Spec.HostRef != nil {
		keep, err := r.keepChoice(ctx, s)
		if err != nil || keep || s.hostLost != "" {
			return keep, ctrl.Result{}, err
		}
		s.host = nil
	}
	if !mayClaim(s) {
		return false, ctrl.Result{}, nil
	}
	host, release, err := r.choose(ctx, s)
	if err != nil {
		return false, ctrl.Result{}, err
	}
	if host == nil {
		if s.noHost == "" {
			return false, ctrl.Result{RequeueAfter: nominatedDelay}, nil
		}
		return false, ctrl.Result{RequeueAfter: waitingDelay}, nil
	}
	if err := r.take(ctx, s, host); err != nil {
		release()
		if errors.Is(err, claim.ErrTaken) {
			return false, ctrl.Result{RequeueAfter: conflictDelay}, nil
		}
		return false, ctrl.Result{}, err
	}
	s.waits = false
	return true, ctrl.Result{}, nil
}

// keepChoice holds on to the host recorded in spec.hostRef: it is bound
// already, or was about to be when the manager stopped. It reports false with
// no hostLost where another host must be chosen.
func (r *Reconciler) keepChoice(ctx context.Context, s *scope) (bool, error) {
	ref := s.machine.Spec.HostRef
	if isBoundTo(s.host, ref) {
		return true, nil
	}
	// The cache may be behind: nothing is concluded from it alone.
	live := &infrav1.ElementalHost{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: ref.Name}, live)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading host %s: %w", ref.Name, err)
	}
	gone := apierrors.IsNotFound(err)
	if !gone {
		s.host = live
		if isBoundTo(live, ref) {
			return true, nil
		}
	}
	switch {
	case gone:
		// It may have run the bootstrap data, and still be at it: the same data on
		// a second host would make two Nodes, or two clusters, of one Machine.
		s.hostLost = fmt.Sprintf("ElementalHost %s does not exist any more; delete the Machine to have it replaced", ref.Name)
		return false, nil
	case s.machine.Spec.ProviderID != "":
		s.hostLost = fmt.Sprintf("ElementalHost %s is not this machine's any more; delete the Machine to have it replaced", ref.Name)
		return false, nil
	case !mayClaim(s):
		return false, nil
	}
	chosen, err := r.chosen(ctx, s)
	if err != nil || !chosen {
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

// chosen reports whether the machine still has the choice we know of. While it
// was being made another manager may have made another, or let the machine go;
// a host bound nevertheless would be nobody's.
func (r *Reconciler) chosen(ctx context.Context, s *scope) (bool, error) {
	live := &infrav1.ElementalMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.machine), live); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading machine %s again: %w", s.machine.Name, err)
	}
	ref := live.Spec.HostRef
	return live.DeletionTimestamp.IsZero() && ref != nil && *ref == *s.machine.Spec.HostRef, nil
}

func isBoundTo(host *infrav1.ElementalHost, ref *infrav1.HostReference) bool {
	return host != nil && host.Spec.Claim != nil && host.Spec.Claim.ID == ref.ClaimID && host.Spec.Claim.Phase == infrav1.ClaimBound
}

// candidates returns the hosts that the machine may choose from. The first
// control-plane machine of a cluster has no choice where the endpoint is a
// host's address: any other host would answer to nobody there.
func (r *Reconciler) candidates(ctx context.Context, s *scope, request placement.Request) ([]*infrav1.ElementalHost, error) {
	endpointHost := firstHost(s)
	if endpointHost == "" {
		return r.list(ctx, s, index.Free)
	}
	own, err := r.list(ctx, s, s.cluster.Name)
	if err != nil {
		return nil, err
	}
	for _, host := range own {
		if host.Name != endpointHost {
			continue
		}
		if host.Spec.Claim.Phase == infrav1.ClaimBound {
			return r.list(ctx, s, index.Free)
		}
		why, ok := request.Suits(host)
		if ok {
			return []*infrav1.ElementalHost{host}, nil
		}
		s.noHost = fmt.Sprintf("Host %s, whose address is the cluster's endpoint, can't be used now: %s", host.Name, why)
		return nil, nil
	}
	s.noHost = fmt.Sprintf("Host %s, whose address is the cluster's endpoint, is not yet reserved for the cluster", endpointHost)
	return nil, nil
}

// firstHost names the host that the cluster's first control-plane machine must
// take; blank where there is none or the machine is not the first.
func firstHost(s *scope) string {
	if s.infraCluster == nil || reservedFor(s) == "" || s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef == nil {
		return ""
	}
	if ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return ""
	}
	return s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name
}

// requestFor says what the machine asks for.
func (r *Reconciler) requestFor(ctx context.Context, s *scope) placement.Request {
	request := placement.Request{
		HostName:           s.machine.Spec.HostName,
		Selector:           r.Selectors.Compile(ctx, s.machine.Spec.HostSelector),
		FailureDomainLabel: failureDomainLabel(s.infraCluster),
		ReservedFor:        reservedFor(s),
	}
	if s.owner != nil {
		request.FailureDomain = s.owner.Spec.FailureDomain
	}
	if c := s.infraCluster; c != nil && request.ReservedFor != "" && c.Spec.ControlPlaneEndpointPolicy.VIP != nil {
		request.Able = kubevip.Able(c.Spec.ControlPlaneEndpointPolicy.VIP, c.Spec.ControlPlaneEndpoint.Host)
	}
	return request
}

// reservedFor names the cluster whose reservation the machine may use; blank for
// workers.
func reservedFor(s *scope) string {
	if s.owner == nil || s.cluster == nil || !util.IsControlPlaneMachine(s.owner) {
		return ""
	}
	return s.cluster.Name
}

func failureDomainLabel(c *infrav1.ElementalCluster) string {
	if c != nil && c.Spec.FailureDomains.HostLabel != "" {
		return c.Spec.FailureDomains.HostLabel
	}
	return infrav1.DefaultFailureDomainLabel
}

// list returns hosts of the machine's namespace by who has claimed them; all
// where that is blank. They are the cache's own and must not be changed.
func (r *Reconciler) list(ctx context.Context, s *scope, claimedBy string) ([]*infrav1.ElementalHost, error) {
	options := []client.ListOption{client.InNamespace(s.machine.Namespace), client.UnsafeDisableDeepCopy}
	if claimedBy != "" {
		options = append(options, client.MatchingFields{index.HostByCluster: claimedBy})
	}
	if r.WatchFilter != "" {
		// Of other hosts this manager would hear nothing.
		options = append(options, client.MatchingLabels{clusterv1.WatchLabel: r.WatchFilter})
	}
	hosts := &infrav1.ElementalHostList{}
	if err := r.Client.List(ctx, hosts, options...); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	out := make([]*infrav1.ElementalHost, len(hosts.Items))
	for i := range hosts.Items {
		out[i] = &hosts.Items[i]
	}
	return out, nil
}

// take records the choice on the machine and then binds the host.
func (r *Reconciler) take(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	if host.Spec.Claim != nil {
		// An endpoint that was exchanged leaves a Machine behind that is being
		// deleted; the cache may not show it yet.
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

// bind binds the host to the recorded choice. Conflicts with writes that do not
// concern the claim, such as an agent's report, are tried again.
func (r *Reconciler) bind(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	request, ref := r.requestFor(ctx, s), s.machine.Spec.HostRef
	var err error
	for range bindAttempts {
		if why, ok := request.Suits(host); !ok && !isBoundTo(host, ref) {
			return fmt.Errorf("claiming host %s, which is %s by now: %w", host.Name, why, claim.ErrTaken)
		}
		err = claim.Bind(ctx, r.Client, host, infrav1.HostClaim{
			ID: ref.ClaimID, ClusterName: s.cluster.Name, MachineName: machineName(s), Role: role(s),
		})
		if err == nil {
			return r.confirm(ctx, s, host)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(host), host); err != nil {
			return fmt.Errorf("reading host %s again: %w", host.Name, err)
		}
		// In this order: a choice that was replaced before this look at the
		// machine is seen by it, and the host's resourceVersion is older.
		if chosen, err := r.chosen(ctx, s); err != nil {
			return err
		} else if !chosen {
			return fmt.Errorf("claiming host %s, which another was chosen instead of: %w", host.Name, claim.ErrTaken)
		}
	}
	return err
}

// role is what the machine is in its cluster. Control planes begin on one
// machine; there are others only when that one is up.
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

// confirm takes over a host that was just bound, unless the machine is not its
// any more: another manager may have let the machine go in between, and did not
// see this host.
func (r *Reconciler) confirm(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	chosen, err := r.chosen(ctx, s)
	if err != nil {
		return err
	}
	if !chosen {
		if err := claim.Release(ctx, r.Client, host, s.machine.Spec.HostRef.ClaimID, s.machine.Spec.Release.EraseDataDisks); err != nil {
			return err
		}
		return fmt.Errorf("claiming host %s for a machine that is being deleted or has another: %w", host.Name, claim.ErrTaken)
	}
	s.host = host
	r.Recorder.Eventf(s.machine, host, corev1.EventTypeNormal, infrav1.HostClaimedReason, "Claim", "Claimed host %s", host.Name)
	return nil
}

// moveBlock is the value of Cluster API's block-move annotation on a machine
// whose host is being bootstrapped; values of others are theirs.
const moveBlock = "elemental-bootstrap"

// blockMove has `clusterctl move` wait until the host is bootstrapped. It is put
// on the machine rather than on the host because it costs no write there.
func blockMove(m *infrav1.ElementalMachine) {
	if _, blocked := m.Annotations[clusterctlv1.BlockMoveAnnotation]; !blocked {
		annotations.AddAnnotations(m, map[string]string{clusterctlv1.BlockMoveAnnotation: moveBlock})
	}
}

func allowMove(m *infrav1.ElementalMachine) {
	if m.Annotations[clusterctlv1.BlockMoveAnnotation] == moveBlock {
		delete(m.Annotations, clusterctlv1.BlockMoveAnnotation)
	}
}

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) error {
	if controllerutil.ContainsFinalizer(s.machine, infrav1.MachineFinalizer) {
		return nil
	}
	return r.patchSpec(ctx, s, "adding finalizer", func(m *infrav1.ElementalMachine) {
		controllerutil.AddFinalizer(m, infrav1.MachineFinalizer)
	})
}

// patchSpec changes spec or metadata, if nobody else has changed the machine
// since it was read. status in memory is kept.
func (r *Reconciler) patchSpec(ctx context.Context, s *scope, doing string, change func(*infrav1.ElementalMachine)) error {
	before := s.machine.DeepCopy()
	after := s.machine.DeepCopy()
	change(after)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	after.Status = s.machine.Status
	*s.machine = *after
	return nil
}
