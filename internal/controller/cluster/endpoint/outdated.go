package endpoint

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

const (
	// maxDeletions is how many Machines one reconcile deletes.
	maxDeletions = 10
	// staleReadTime is how long after a move a bootstrap provider with an outdated
	// cache may read the former endpoint from the Cluster, for a new Machine.
	staleReadTime = 30 * time.Second
	// kubeadmConfig is the only kind of bootstrap data that is known never to be
	// rewritten. Other providers may renew theirs.
	kubeadmConfig = "KubeadmConfig"
)

// outdatedMachines deletes Machines whose bootstrap data names a former endpoint, or will
// when it is written. Their owners create new ones. The data itself is never edited.
type outdatedMachines struct {
	client    client.Client
	apiReader client.Reader
	recorder  events.EventRecorder
}

func (r *Reconciler) outdated() outdatedMachines {
	return outdatedMachines{client: r.Client, apiReader: r.APIReader, recorder: r.Recorder}
}

// deleteUnclaimed deletes control-plane Machines that are older than the choice of the
// endpoint and have claimed no host. It is for endpoints that nothing uses yet.
func (o outdatedMachines) deleteUnclaimed(ctx context.Context, s *scope.Scope) error {
	machines := &clusterv1.MachineList{}
	err := o.client.List(ctx, machines, client.InNamespace(s.Cluster.Namespace),
		client.MatchingFields{index.MachineByCluster: s.Cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return fmt.Errorf("listing control-plane Machines: %w", err)
	}
	chosenAt := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt
	for i := range machines.Items {
		m := &machines.Items[i]
		if !m.DeletionTimestamp.IsZero() || !m.CreationTimestamp.Before(&chosenAt) ||
			m.Spec.Bootstrap.ConfigRef.Kind != kubeadmConfig || !util.IsControlPlaneMachine(m) {
			continue
		}
		hosts := &infrav1.ElementalHostList{}
		if err := o.client.List(ctx, hosts, client.InNamespace(m.Namespace), client.MatchingFields{index.HostByMachine: m.Name}); err != nil {
			return fmt.Errorf("listing hosts of Machine %s: %w", m.Name, err)
		}
		if len(hosts.Items) > 0 {
			continue
		}
		if err := o.delete(ctx, s, m, "Exchange", "no host had it yet"); err != nil {
			return err
		}
	}
	return nil
}

// deleteFailedOrUnused deletes outdated Machines whose bootstrap failed or has not
// started. It leaves Machines without an owner alone, because nothing would replace them.
// pending names the Machines that a later reconcile has to delete. retryAt is when to
// look again although nothing changes; zero: never.
func (o outdatedMachines) deleteFailedOrUnused(ctx context.Context, s *scope.Scope, c failover.Cluster) (pending []string, retryAt time.Time, _ error) {
	machines := &clusterv1.MachineList{}
	err := o.client.List(ctx, machines, client.InNamespace(s.Cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.MachineByCluster: s.Cluster.Name})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("listing Machines of the cluster: %w", err)
	}
	hosts := map[string]*infrav1.ElementalHost{}
	for _, m := range c.Members {
		hosts[m.Host.Spec.Claim.MachineName] = m.Host
	}
	deleted := 0
	for i := range machines.Items {
		m := &machines.Items[i]
		if !isReplaceable(m, hosts[m.Name]) {
			continue
		}
		outdated, known, err := o.isOutdated(ctx, s, m)
		switch {
		case err != nil:
			return nil, time.Time{}, err
		case !known:
			retryAt = c.Now.Add(staleReadTime)
			continue
		case !outdated:
			continue
		case deleted == maxDeletions:
			pending = append(pending, "Machine "+m.Name)
			continue
		}
		deleted++
		if err := o.delete(ctx, s, m, "Move", "made no Node"); err != nil {
			return nil, time.Time{}, err
		}
	}
	if len(pending) > 0 {
		retryAt = c.Now.Add(time.Second)
	}
	return pending, retryAt, nil
}

// isReplaceable reports whether the Machine has made no Node, and its owner creates
// another when it is deleted. A bootstrap that runs may still succeed.
func isReplaceable(m *clusterv1.Machine, host *infrav1.ElementalHost) bool {
	if !m.DeletionTimestamp.IsZero() || m.Status.NodeRef.IsDefined() || m.Spec.Bootstrap.ConfigRef.Kind != kubeadmConfig ||
		metav1.GetControllerOfNoCopy(m) == nil {
		return false
	}
	if host == nil {
		return true
	}
	op := host.Operation(infrav1.OperationBootstrap, host.Spec.Claim.ID)
	return op == nil || (op.State != infrav1.OperationRunning && op.State != infrav1.OperationSucceeded)
}

// isOutdated reports whether the Machine's bootstrap data names a former endpoint, or
// will. known is false while the data is needed to decide and does not exist yet.
//
// The bootstrap provider of kubeadm stores the endpoint in the KubeadmConfig before it
// connects to the cluster, and never changes it again. After a move it can't connect for
// a while, so data that it writes minutes later may still name the former endpoint. What
// counts is therefore the age of the Machine, not of its data.
func (o outdatedMachines) isOutdated(ctx context.Context, s *scope.Scope, m *clusterv1.Machine) (outdated, known bool, _ error) {
	if moved := s.InfraCluster.EndpointMovedAt(); m.CreationTimestamp.Before(&moved) {
		return true, true, nil
	}
	// Data of younger Machines is not searched. A template may contain a former address
	// on purpose, and all Machines made from it would be deleted, again and again.
	chosenAt := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt
	if m.CreationTimestamp.After(chosenAt.Add(staleReadTime)) {
		return false, true, nil
	}
	name := ptr.Deref(m.Spec.Bootstrap.DataSecretName, "")
	if name == "" {
		return false, false, nil
	}
	data := &corev1.Secret{}
	err := o.apiReader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, data)
	if client.IgnoreNotFound(err) != nil {
		return false, false, fmt.Errorf("reading bootstrap data of Machine %s: %w", m.Name, err)
	}
	if err != nil {
		return false, true, nil //nolint:nilerr // the Secret does not exist
	}
	return data.CreationTimestamp.Before(&chosenAt) || slices.ContainsFunc(s.InfraCluster.Spec.ControlPlaneEndpointPolicy.FormerEndpoints, func(f infrav1.FormerEndpoint) bool {
		former := f.HostPort()
		return bytes.Contains(data.Data["value"], []byte(former)) || bytes.Contains(data.Data["value"], []byte(url.QueryEscape(former)))
	}), true, nil
}

// delete deletes the Machine and records an Event. why ends the Event's message.
func (o outdatedMachines) delete(ctx context.Context, s *scope.Scope, m *clusterv1.Machine, action, why string) error {
	ctrl.LoggerFrom(ctx).Info("Deleting Machine whose bootstrap data is for a former endpoint", "Machine", klog.KObj(m))
	if err := o.client.Delete(ctx, m.DeepCopy(), client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
	}
	o.recorder.Eventf(s.InfraCluster, m, corev1.EventTypeNormal, "MachineOutdated", action,
		"Deleted Machine %s: its bootstrap data is for a former endpoint and %s", m.Name, why)
	return nil
}
