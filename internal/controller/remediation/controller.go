package remediation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalremediations,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalremediations/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles ElementalRemediations. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder records Events on ElementalRemediations.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Metrics counts the outcomes of remediations.
	Metrics *Metrics
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	startOnce sync.Once
	startedAt time.Time
}

// scope holds what one reconcile has read and found out. It has no methods.
type scope struct {
	remediation *infrav1.ElementalRemediation
	// owner is the unhealthy Machine; nil if it does not exist.
	owner *clusterv1.Machine
	// cluster is nil if it does not exist.
	cluster *clusterv1.Cluster
	// infraCluster is nil if it does not exist.
	infraCluster *infrav1.ElementalCluster
	// machine is the Machine's infrastructure; nil unless it and the Machine refer to each
	// other.
	machine *infrav1.ElementalMachine
	// host is the host that the machine has claimed; nil if it does not exist.
	host *infrav1.ElementalHost
	// others are the cluster's other hosts. They belong to the cache and must not be
	// changed.
	others []*infrav1.ElementalHost
	// now is the time of this reconcile, startedAt that of this manager's first.
	now, startedAt time.Time
	// suspended is true if the last reconcile did not act on purpose.
	suspended bool
	decision  decision
}

func statusOf(r *infrav1.ElementalRemediation) *infrav1.ElementalRemediationStatus { return &r.Status }

// Reconcile reconciles one ElementalRemediation.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.startOnce.Do(func() { r.startedAt = r.Clock.Now() })
	remediation := &infrav1.ElementalRemediation{}
	if err := r.Client.Get(ctx, req.NamespacedName, remediation); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.RequeueConflict(ctrl.Result{}, r.withdrawAll(ctx, req.NamespacedName))
		}
		return ctrl.Result{}, fmt.Errorf("getting ElementalRemediation: %w", err)
	}
	if !reconcile.IsWatched(remediation, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	if !remediation.DeletionTimestamp.IsZero() {
		return reconcile.RequeueConflict(ctrl.Result{}, r.withdrawAll(ctx, req.NamespacedName))
	}
	s := &scope{remediation: remediation, now: r.Clock.Now(), startedAt: r.startedAt, suspended: wasSuspended(remediation)}
	before := remediation.Status.DeepCopy()
	if err := r.read(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	ctx = ctrl.LoggerInto(ctx, logger(ctx, s))

	result, err := ctrl.Result{}, error(nil)
	if !paused(s) {
		result, err = r.remediate(ctx, s)
	}
	if !apierrors.IsConflict(err) {
		if statusErr := r.patchStatus(ctx, s, before); err == nil {
			err = statusErr
		}
	}
	return reconcile.RequeueConflict(result, err)
}

// remediate decides what to do and does it.
func (r *Reconciler) remediate(ctx context.Context, s *scope) (ctrl.Result, error) {
	decide(s)
	if err := r.withdraw(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	var err error
	switch s.decision.action {
	case actionReboot:
		err = r.reboot(ctx, s)
	case actionReplace:
		err = r.replace(ctx, s)
	case actionNone:
	}
	return ctrl.Result{RequeueAfter: s.decision.requeueAfter}, err
}

func paused(s *scope) bool { return reconcile.IsPaused(s.cluster, s.remediation, true) }

// read reads the objects that belong to s.remediation.
func (r *Reconciler) read(ctx context.Context, s *scope) error {
	namespace := s.remediation.Namespace
	var err error
	if s.owner, err = util.GetOwnerMachine(ctx, r.Client, s.remediation.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting owner Machine: %w", err)
	}
	if s.cluster, err = reconcile.Get(ctx, r.Client, namespace, clusterName(s), &clusterv1.Cluster{}); err != nil {
		return fmt.Errorf("getting Cluster: %w", err)
	}
	if s.owner == nil || s.cluster == nil {
		return nil
	}
	if s.infraCluster, err = reconcile.Get(ctx, r.Client, namespace, s.cluster.Spec.InfrastructureRef.Name, &infrav1.ElementalCluster{}); err != nil {
		return fmt.Errorf("getting ElementalCluster: %w", err)
	}
	// The Cluster and the Machine may name objects of other kinds.
	if s.infraCluster != nil && !ownership.NamesInfraCluster(s.cluster, s.infraCluster) {
		s.infraCluster = nil
	}
	machine, err := reconcile.Get(ctx, r.Client, namespace, s.owner.Spec.InfrastructureRef.Name, &infrav1.ElementalMachine{})
	if err != nil {
		return fmt.Errorf("getting ElementalMachine: %w", err)
	}
	if machine == nil || !ownership.IsInfraMachine(machine, s.owner) {
		return nil
	}
	if s.machine = machine; machine.Spec.HostRef == nil {
		return nil
	}
	host, err := reconcile.Get(ctx, r.Client, namespace, s.machine.Spec.HostRef.Name, &infrav1.ElementalHost{})
	if err != nil {
		return fmt.Errorf("getting ElementalHost: %w", err)
	}
	if host == nil || host.Spec.Claim == nil || host.Spec.Claim.ID != s.machine.Spec.HostRef.ClaimID || host.Spec.Claim.MachineName != s.owner.Name {
		return nil
	}
	s.host = host
	// Without the watch filter: hosts of other managers are witnesses, too.
	hosts, err := reconcile.ListHosts(ctx, r.Client, namespace, "", client.MatchingFields{index.HostByCluster: s.cluster.Name})
	s.others = slices.DeleteFunc(hosts, func(other *infrav1.ElementalHost) bool { return other.Name == host.Name })
	return err
}

// clusterName returns the name of the remediation's Cluster, from the owner or, if it
// does not exist, from the label that Cluster API sets on objects made from a template.
func clusterName(s *scope) string {
	if s.owner != nil {
		return s.owner.Spec.ClusterName
	}
	return s.remediation.Labels[clusterv1.ClusterNameLabel]
}

func logger(ctx context.Context, s *scope) klog.Logger {
	log := ctrl.LoggerFrom(ctx)
	if s.owner != nil {
		log = log.WithValues("Machine", klog.KObj(s.owner))
	}
	if s.cluster != nil {
		log = log.WithValues("Cluster", klog.KObj(s.cluster))
	}
	if s.host != nil {
		log = log.WithValues("ElementalHost", klog.KObj(s.host))
	}
	return log
}
