package remediation

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalremediations,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalremediations/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// conflictDelay lets the cache catch up with a write that won against ours.
const conflictDelay = 100 * time.Millisecond

// Reconciler reconciles ElementalRemediations. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder records Events on ElementalRemediations.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Metrics counts what remediations came to.
	Metrics *Metrics
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	begin sync.Once
	began time.Time
}

// scope is what one reconcile has read and found out. It has no methods that
// read or write.
type scope struct {
	remediation *infrav1.ElementalRemediation
	// owner is the unhealthy Machine; nil when it does not exist.
	owner *clusterv1.Machine
	// cluster is nil when it does not exist.
	cluster *clusterv1.Cluster
	// infraCluster is nil when it does not exist.
	infraCluster *infrav1.ElementalCluster
	// machine is the Machine's infrastructure; nil when it does not exist or is not
	// an ElementalMachine.
	machine *infrav1.ElementalMachine
	// host is the machine's; nil when it has none or it is not its any more.
	host *infrav1.ElementalHost
	// others are the cluster's other hosts. They are the cache's own and must not
	// be changed.
	others []*infrav1.ElementalHost
	// now is when the reconcile began, and began when this manager's first did.
	now, began time.Time
	// aside is true when the last reconcile stood aside.
	aside bool
	// decision is what is to be done.
	decision decision
}

// Reconcile brings one ElementalRemediation a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.begin.Do(func() { r.began = r.Clock.Now() })
	remediation := &infrav1.ElementalRemediation{}
	if err := r.Client.Get(ctx, req.NamespacedName, remediation); err != nil {
		if apierrors.IsNotFound(err) {
			return again(ctrl.Result{}, r.forget(ctx, req.NamespacedName))
		}
		return ctrl.Result{}, fmt.Errorf("getting ElementalRemediation: %w", err)
	}
	if r.WatchFilter != "" && !labels.HasWatchLabel(remediation, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	if !remediation.DeletionTimestamp.IsZero() {
		return again(ctrl.Result{}, r.forget(ctx, req.NamespacedName))
	}
	s := &scope{remediation: remediation, now: r.Clock.Now(), began: r.began, aside: stoodAside(remediation)}
	before := remediation.Status.DeepCopy()
	if err := r.read(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	ctx = ctrl.LoggerInto(ctx, logger(ctx, s))

	result, err := ctrl.Result{}, error(nil)
	if !paused(s) {
		result, err = r.remedy(ctx, s)
	}
	if apierrors.IsConflict(err) {
		return again(result, err)
	}
	if statusErr := r.patchStatus(ctx, s, before); err == nil {
		err = statusErr
	}
	return again(result, err)
}

// again turns a conflict into another look: somebody was quicker, or the cache is
// behind.
func again(result ctrl.Result, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return result, err
}

// remedy decides what to do and does it.
func (r *Reconciler) remedy(ctx context.Context, s *scope) (ctrl.Result, error) {
	decide(s)
	if err := r.withdraw(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	var err error
	switch s.decision.act {
	case actReboot:
		err = r.reboot(ctx, s)
	case actReplace:
		err = r.replace(ctx, s)
	case actNothing:
	}
	return ctrl.Result{RequeueAfter: s.decision.again}, err
}

// paused treats a cluster that is missing as paused: on the target of a move
// objects arrive one by one.
func paused(s *scope) bool {
	return s.cluster == nil || annotations.IsPaused(s.cluster, s.remediation)
}

func (r *Reconciler) read(ctx context.Context, s *scope) error {
	var err error
	if s.owner, err = util.GetOwnerMachine(ctx, r.Client, s.remediation.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting owner Machine: %w", err)
	}
	if s.cluster, err = get(ctx, r.Client, s, clusterName(s), &clusterv1.Cluster{}); err != nil {
		return fmt.Errorf("getting Cluster: %w", err)
	}
	if s.owner == nil || s.cluster == nil {
		return nil
	}
	if s.infraCluster, err = get(ctx, r.Client, s, s.cluster.Spec.InfrastructureRef.Name, &infrav1.ElementalCluster{}); err != nil {
		return fmt.Errorf("getting ElementalCluster: %w", err)
	}
	ref := s.owner.Spec.InfrastructureRef
	if ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != "ElementalMachine" {
		return nil
	}
	if s.machine, err = get(ctx, r.Client, s, ref.Name, &infrav1.ElementalMachine{}); err != nil {
		return fmt.Errorf("getting ElementalMachine: %w", err)
	}
	if s.machine == nil || s.machine.Spec.HostRef == nil {
		return nil
	}
	host, err := get(ctx, r.Client, s, s.machine.Spec.HostRef.Name, &infrav1.ElementalHost{})
	if err != nil {
		return fmt.Errorf("getting ElementalHost: %w", err)
	}
	if host == nil || host.Spec.Claim == nil || host.Spec.Claim.ID != s.machine.Spec.HostRef.ClaimID {
		return nil
	}
	s.host = host
	return r.readOthers(ctx, s)
}

func (r *Reconciler) readOthers(ctx context.Context, s *scope) error {
	hosts := &infrav1.ElementalHostList{}
	err := r.Client.List(ctx, hosts, client.InNamespace(s.host.Namespace),
		client.MatchingFields{index.HostByCluster: s.cluster.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing hosts of the Cluster: %w", err)
	}
	for i := range hosts.Items {
		if hosts.Items[i].Name != s.host.Name {
			s.others = append(s.others, &hosts.Items[i])
		}
	}
	return nil
}

// get reads an object of the remediation's namespace into o, and returns nil where
// it does not exist or has no name.
func get[T client.Object](ctx context.Context, c client.Reader, s *scope, name string, o T) (none T, _ error) {
	if name == "" {
		return none, nil
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: s.remediation.Namespace, Name: name}, o); err != nil {
		return none, client.IgnoreNotFound(err)
	}
	return o, nil
}

// clusterName is the name of the remediation's Cluster: the owner's, or the label
// that Cluster API gives what it makes from a template.
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
