package tunnel

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch

// nameTakenDelay is the interval at which a cluster checks whether the name of its Service
// has become free. Foreign Services are not watched.
const nameTakenDelay = time.Minute

// reconcileService makes the Service of that name lead to the gateway. It writes only what
// differs. A Service that the ElementalCluster does not control is left alone, and reported.
// Nothing deletes the Service but the garbage collector, with its owner: clusterctl move
// does not take it along, and the other management cluster makes its own.
func (r *Reconciler) reconcileService(ctx context.Context, s *scope.Scope, name string) (problem *scope.Endpoint, _ error) {
	key := client.ObjectKey{Namespace: s.InfraCluster.Namespace, Name: name}
	service, err := r.findService(ctx, key)
	if err != nil {
		return nil, err
	}
	wanted := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: r.Settings.Gateway}
	switch {
	case service == nil:
		return nil, r.createService(ctx, s, key, wanted)
	case !metav1.IsControlledBy(service, s.InfraCluster):
		return &scope.Endpoint{RequeueAfter: nameTakenDelay, Reason: infrav1.EndpointNameTakenReason, Message: fmt.Sprintf(
			"Service %s, which has to lead to the gateway, belongs to somebody else: delete it, or give the cluster another name", name)}, nil
	}
	_, labelled := service.Labels[infrav1.EndpointServiceLabel]
	if labelled && service.Spec.Type == wanted.Type && service.Spec.ExternalName == wanted.ExternalName {
		return nil, nil
	}
	before := service.DeepCopy()
	setLabels(service, s)
	service.Spec = wanted
	if err := r.Client.Patch(ctx, service, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("correcting Service %s: %w", name, err)
	}
	return nil, nil
}

// findService returns the Service, or nil if it does not exist. One that the cache does not have
// is foreign, lost its label or was created a moment ago.
func (r *Reconciler) findService(ctx context.Context, key client.ObjectKey) (*corev1.Service, error) {
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		service := &corev1.Service{}
		err := reader.Get(ctx, key, service)
		if err == nil {
			return service, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("getting Service %s: %w", key.Name, err)
		}
	}
	return nil, nil
}

func (r *Reconciler) createService(ctx context.Context, s *scope.Scope, key client.ObjectKey, spec corev1.ServiceSpec) error {
	owner := metav1.NewControllerRef(s.InfraCluster, infrav1.GroupVersion.WithKind("ElementalCluster"))
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{*owner}},
		Spec:       spec,
	}
	setLabels(service, s)
	if err := r.Client.Create(ctx, service); err != nil {
		return fmt.Errorf("creating Service %s: %w", key.Name, err)
	}
	return nil
}

func setLabels(service *corev1.Service, s *scope.Scope) {
	if service.Labels == nil {
		service.Labels = map[string]string{}
	}
	service.Labels[infrav1.EndpointServiceLabel] = ""
	service.Labels[clusterv1.ClusterNameLabel] = s.Cluster.Name
}
