package certificates

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// again is how long after a reconcile the kubeconfig is read again.
const again = 12 * time.Hour

// Reconciler reconciles the certificates of ElementalClusters. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads Secrets from the API server.
	APIReader client.Reader
	// Recorder records Events on ElementalClusters.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must
	// have; blank for all.
	WatchFilter string
}

// Reconcile reconciles the certificates of one cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.ElementalCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(infra, r.WatchFilter) || annotations.IsExternallyManaged(infra) || !infra.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cluster, err := r.owner(ctx, infra)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() || annotations.IsPaused(cluster, infra) {
		return ctrl.Result{}, nil
	}
	before := infra.Status.DeepCopy()
	after, err := r.reconcile(ctx, infra, cluster)
	if err != nil {
		return reconcile.RequeueConflict(ctrl.Result{}, err)
	}
	_, err = reconcile.PatchStatus(ctx, r.Client, infra, func(c *infrav1.ElementalCluster) *infrav1.ElementalClusterStatus { return &c.Status }, before)
	if err == nil {
		r.record(infra, before)
	}
	return reconcile.RequeueConflict(ctrl.Result{RequeueAfter: after}, err)
}

// owner returns the Cluster that the ElementalCluster belongs to; nil if they don't refer to
// each other, which the condition Ready says.
func (r *Reconciler) owner(ctx context.Context, infra *infrav1.ElementalCluster) (*clusterv1.Cluster, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if err = client.IgnoreNotFound(err); err != nil {
		return nil, fmt.Errorf("getting owner Cluster: %w", err)
	}
	if cluster == nil || !ownership.IsInfraCluster(infra, cluster) {
		return nil, nil
	}
	return cluster, nil
}

// reconcile sets the status, requests a renewal if one is due, and returns when to look again.
func (r *Reconciler) reconcile(ctx context.Context, infra *infrav1.ElementalCluster, cluster *clusterv1.Cluster) (time.Duration, error) {
	f, err := r.read(ctx, infra, cluster)
	if err != nil {
		return 0, err
	}
	if infra.Status.KubeconfigNotAfter, err = r.readKubeconfig(ctx, cluster); err != nil {
		return 0, err
	}
	d := decide(f)
	if d.renew != nil {
		if err := r.request(ctx, d.renew.DeepCopy(), f.now); err != nil {
			return 0, err
		}
	}
	if err := r.tellClusterAPI(ctx, f); err != nil {
		return 0, err
	}
	if d.condition == nil {
		meta.RemoveStatusCondition(&infra.Status.Conditions, infrav1.CertificatesValidCondition)
	} else {
		reconcile.SetConditions(&infra.Status.Conditions, infra.Generation, f.now, *d.condition)
	}
	if left := d.at.Sub(f.now); !d.at.IsZero() && left > 0 {
		return min(left, again), nil
	}
	return again, nil
}

// read reads the hosts of the control plane. Without the watch filter: hosts of other managers may
// belong to it, too.
func (r *Reconciler) read(ctx context.Context, infra *infrav1.ElementalCluster, cluster *clusterv1.Cluster) (facts, error) {
	f := facts{infra: infra, now: r.Clock.Now()}
	hosts, err := reconcile.ListHosts(ctx, r.Client, infra.Namespace, "", client.MatchingFields{index.HostByCluster: cluster.Name})
	if err != nil {
		return f, err
	}
	f.hosts = controlPlane(hosts)
	if host := single(f); host != nil {
		f.machine, err = r.machineOf(ctx, host)
	}
	return f, err
}

// machineOf returns the Machine that the host is claimed for; nil if it does not exist.
func (r *Reconciler) machineOf(ctx context.Context, host *infrav1.ElementalHost) (*clusterv1.Machine, error) {
	machine, err := reconcile.Get(ctx, r.Client, host.Namespace, host.Spec.Claim.MachineName, &clusterv1.Machine{})
	if err != nil {
		return nil, fmt.Errorf("getting Machine: %w", err)
	}
	return machine, nil
}

// request requests a renewal of the host.
func (r *Reconciler) request(ctx context.Context, host *infrav1.ElementalHost, now time.Time) error {
	request := &infrav1.HostCertificateRenewal{ID: inplace.NewRequestID(host.Spec.Claim), RequestedAt: metav1.NewTime(now)}
	ctrl.LoggerFrom(ctx).Info("Requesting the renewal of certificates", "ElementalHost", klog.KObj(host), "request", request.ID)
	return reconcile.PatchSpec(ctx, r.Client, host, func(h *infrav1.ElementalHost) *infrav1.ElementalHostStatus { return &h.Status },
		"requesting the renewal of certificates of host "+host.Name, func(h *infrav1.ElementalHost) { h.Spec.CertificateRenewal = request })
}

// tellClusterAPI writes when the certificate of the API server ends to the Machine of each host that
// has renewed its certificates. Cluster API reads it from the API server only once, and would replace
// the Machine for the former one.
func (r *Reconciler) tellClusterAPI(ctx context.Context, f facts) error {
	for _, host := range f.hosts {
		op, end := operation(host), apiServerEnd(host)
		if op == nil || op.State != infrav1.OperationSucceeded || end == "" {
			continue
		}
		machine, err := r.machineOf(ctx, host)
		if err != nil {
			return err
		}
		if machine == nil || machine.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] == end {
			continue
		}
		if err := reconcile.PatchSpec(ctx, r.Client, machine, func(m *clusterv1.Machine) *clusterv1.MachineStatus { return &m.Status },
			"writing the end of the certificates to Machine "+machine.Name, func(m *clusterv1.Machine) {
				metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.MachineCertificatesExpiryDateAnnotation, end)
			}); err != nil {
			return err
		}
	}
	return nil
}

// apiServerEnd returns when the certificate of the host's API server ends; blank if it is unknown.
func apiServerEnd(host *infrav1.ElementalHost) string {
	for i := range host.Status.Certificates {
		if c := &host.Status.Certificates[i]; c.Name == "pki/apiserver.crt" {
			return c.NotAfter.UTC().Format(time.RFC3339)
		}
	}
	return ""
}

// record records an Event when the condition gets another reason.
func (r *Reconciler) record(infra *infrav1.ElementalCluster, before *infrav1.ElementalClusterStatus) {
	was := meta.FindStatusCondition(before.Conditions, infrav1.CertificatesValidCondition)
	is := meta.FindStatusCondition(infra.Status.Conditions, infrav1.CertificatesValidCondition)
	if is == nil || was != nil && was.Reason == is.Reason {
		return
	}
	switch is.Reason {
	case infrav1.CertificatesValidReason:
		if was != nil {
			r.Recorder.Eventf(infra, nil, corev1.EventTypeNormal, infrav1.CertificatesValidReason, "Renew", "No certificate of the cluster ends soon")
		}
	case infrav1.CertificatesRenewingReason:
		r.Recorder.Eventf(infra, nil, corev1.EventTypeNormal, infrav1.CertificatesRenewingReason, "Renew", "%s", is.Message)
	case infrav1.CertificateRenewalWaitingReason:
		r.warn(infra, infrav1.CertificateRenewalWaitingReason, is.Message)
	case infrav1.CertificateRenewalFailedReason:
		r.warn(infra, infrav1.CertificateRenewalFailedReason, is.Message)
	case infrav1.KubeconfigExpiringReason:
		r.warn(infra, infrav1.KubeconfigExpiringReason, is.Message)
	}
}

func (r *Reconciler) warn(infra *infrav1.ElementalCluster, reason, message string) {
	r.Recorder.Eventf(infra, nil, corev1.EventTypeWarning, reason, "Renew", "%s", message)
}
