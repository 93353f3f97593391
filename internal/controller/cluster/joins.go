package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

const (
	// maxDeletions is how many Machines are deleted at once.
	maxDeletions = 10
	// late is how long a bootstrap provider whose cache is behind may write data
	// with a former endpoint.
	late = 30 * time.Second
)

// deleteOldJoins deletes Machines whose bootstrap data names a former endpoint and
// did not turn a host into a Node: nothing took it yet, or it failed. Their owners
// make others. Those that nobody would make anew, and data of bootstrap providers
// that may renew theirs, are left alone.
func (r *Reconciler) deleteOldJoins(ctx context.Context, s *scope, c failover.Cluster) (pending []string, _ error) {
	machines := &clusterv1.MachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(s.cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.MachineByCluster: s.cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("listing Machines of the cluster: %w", err)
	}
	hosts := map[string]*infrav1.ElementalHost{}
	for _, m := range c.Members {
		hosts[m.Host.Spec.Claim.MachineName] = m.Host
	}
	deleted := 0
	for i := range machines.Items {
		m := &machines.Items[i]
		if !joins(m, hosts[m.Name]) {
			continue
		}
		outdated, err := r.isOutdated(ctx, s, m)
		if err != nil {
			return nil, err
		}
		if !outdated {
			continue
		}
		if deleted == maxDeletions {
			pending = append(pending, "Machine "+m.Name)
			continue
		}
		deleted++
		if err := r.deleteOutdatedMachine(ctx, s, m); err != nil {
			return nil, err
		}
	}
	return pending, nil
}

// joins reports whether the Machine has data that is still to be run, or failed,
// and somebody makes another if it goes.
func joins(m *clusterv1.Machine, host *infrav1.ElementalHost) bool {
	if !m.DeletionTimestamp.IsZero() || m.Status.NodeRef.IsDefined() || m.Spec.Bootstrap.ConfigRef.Kind != "KubeadmConfig" ||
		ptr.Deref(m.Spec.Bootstrap.DataSecretName, "") == "" || metav1.GetControllerOfNoCopy(m) == nil {
		return false
	}
	if host == nil {
		return true
	}
	op := host.Operation(infrav1.OperationBootstrap, host.Spec.Claim.ID)
	return op == nil || op.State == infrav1.OperationFailed
}

// isOutdated reports whether the Machine's data was made for a former endpoint.
func (r *Reconciler) isOutdated(ctx context.Context, s *scope, m *clusterv1.Machine) (bool, error) {
	data := &corev1.Secret{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: *m.Spec.Bootstrap.DataSecretName}, data)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading bootstrap data of Machine %s: %w", m.Name, err)
	}
	if err != nil {
		return false, nil //nolint:nilerr // there is none
	}
	chosenAt := s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt
	if data.CreationTimestamp.Before(&chosenAt) {
		return true, nil
	}
	// Later data is never looked into: a template that has the address for a reason
	// of its own would have its Machines deleted for ever.
	if data.CreationTimestamp.After(chosenAt.Add(late)) {
		return false, nil
	}
	return slices.ContainsFunc(s.infraCluster.Spec.ControlPlaneEndpointPolicy.FormerEndpoints, func(f infrav1.FormerEndpoint) bool {
		former := address.HostPort(f.Host, f.Port)
		return bytes.Contains(data.Data["value"], []byte(former)) || bytes.Contains(data.Data["value"], []byte(url.QueryEscape(former)))
	}), nil
}

func (r *Reconciler) deleteOutdatedMachine(ctx context.Context, s *scope, m *clusterv1.Machine) error {
	ctrl.LoggerFrom(ctx).Info("Deleting Machine whose bootstrap data names a former endpoint", "Machine", klog.KObj(m))
	if err := r.Client.Delete(ctx, m.DeepCopy(), client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
	}
	r.Recorder.Eventf(s.infraCluster, m, corev1.EventTypeNormal, "MachineOutdated", "Move",
		"Deleted Machine %s: its bootstrap data names a former endpoint and made no Node", m.Name)
	return nil
}
