package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// releaser releases or holds the hosts of a machine that is being deleted.
type releaser struct {
	client      client.Client
	apiReader   client.Reader
	clock       clock.PassiveClock
	watchFilter string
}

func (r *Reconciler) releaser() *releaser {
	return &releaser{client: r.Client, apiReader: r.APIReader, clock: r.Clock, watchFilter: r.WatchFilter}
}

// releaseAll releases or holds the machine's host, and any other host that was bound
// for the machine under another claim ID. A manager that lost leadership between
// choosing and binding may leave such a host behind.
func (r *releaser) releaseAll(ctx context.Context, s *scope) error {
	bound := &infrav1.ElementalHostList{}
	if err := r.client.List(ctx, bound, client.InNamespace(s.machine.Namespace), client.MatchingFields{index.HostByMachine: machineName(s)}); err != nil {
		return fmt.Errorf("listing hosts of the machine: %w", err)
	}
	hosts := make([]*infrav1.ElementalHost, 0, len(bound.Items)+1)
	for i := range bound.Items {
		if s.host == nil || bound.Items[i].Name != s.host.Name {
			hosts = append(hosts, &bound.Items[i])
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
		if host != s.host {
			if another, err := r.belongsToAnother(ctx, s, host); err != nil {
				return err
			} else if another {
				continue
			}
		}
		if err := r.release(ctx, s, host); err != nil && !errors.Is(err, claim.ErrTaken) {
			return err
		}
	}
	return nil
}

// belongsToAnother reports whether another ElementalMachine has claimed the host. If
// a user removed a Machine's finalizer, a new Machine may have the same name. If both name
// the claim, one of them was written by somebody who read its ID; then the host belongs to
// the one that the claim's Machine names.
func (r *releaser) belongsToAnother(ctx context.Context, s *scope, host *infrav1.ElementalHost) (bool, error) {
	named := isClaimedBy(host, s.machine.Spec.HostRef)
	if host.Spec.Claim == nil || (named && s.owner != nil && s.owner.Name == host.Spec.Claim.MachineName) {
		return false, nil
	}
	machines := &infrav1.ElementalMachineList{}
	if err := r.apiReader.List(ctx, machines, client.InNamespace(host.Namespace)); err != nil {
		return false, fmt.Errorf("listing machines that host %s may belong to: %w", host.Name, err)
	}
	others := slices.DeleteFunc(machines.Items, func(m infrav1.ElementalMachine) bool {
		return m.UID == s.machine.UID || !isClaimedBy(host, m.Spec.HostRef)
	})
	if !named || len(others) == 0 {
		return len(others) > 0, nil
	}
	owner, err := reconcile.Get(ctx, r.apiReader, host.Namespace, host.Spec.Claim.MachineName, &clusterv1.Machine{})
	if err != nil {
		return false, fmt.Errorf("reading Machine of host %s: %w", host.Name, err)
	}
	return owner != nil && slices.ContainsFunc(others, func(m infrav1.ElementalMachine) bool {
		return ownership.NamesInfraMachine(owner, &m)
	}), nil
}

func (r *releaser) release(ctx context.Context, s *scope, host *infrav1.ElementalHost) error {
	hold := false
	if host.Spec.Fence == nil {
		var err error
		if hold, err = r.mustHold(ctx, s); err != nil {
			return err
		}
	}
	if err := markForDeletion(ctx, r.client, s); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Releasing host", "ElementalHost", klog.KObj(host), "hold", hold)
	if hold {
		return claim.Hold(ctx, r.client, host, host.Spec.Claim.ID, s.machine.Spec.Release.EraseDataDisks)
	}
	return claim.Release(ctx, r.client, host, host.Spec.Claim.ID, s.machine.Spec.Release.EraseDataDisks)
}

// mustHold reports whether the machine's hosts must stay as they are: by the
// machine's release policy, or by the annotation prevent-reset on the Cluster or
// ElementalCluster. It reads those past the cache, because a reset can't be undone.
func (r *releaser) mustHold(ctx context.Context, s *scope) (bool, error) {
	if s.machine.Spec.Release.Policy == infrav1.ReleaseHold {
		return true, nil
	}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: clusterName(s)}
	if key.Name == "" {
		return false, nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.apiReader.Get(ctx, key, cluster); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Cluster %s: %w", key.Name, err)
	}
	if preventsReset(cluster) {
		return true, nil
	}
	if ref := cluster.Spec.InfrastructureRef; ref.IsDefined() {
		infraCluster, err := reconcile.Get(ctx, r.apiReader, key.Namespace, ref.Name, &infrav1.ElementalCluster{})
		if err != nil {
			return false, fmt.Errorf("reading ElementalCluster %s: %w", ref.Name, err)
		}
		return infraCluster != nil && ownership.NamesInfraCluster(cluster, infraCluster) && preventsReset(infraCluster), nil
	}
	// Without a Cluster, nothing says which ElementalCluster is meant. Any holds the hosts.
	infraClusters := &infrav1.ElementalClusterList{}
	err := r.apiReader.List(ctx, infraClusters, client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name})
	if err != nil {
		return false, fmt.Errorf("listing ElementalClusters of Cluster %s: %w", key.Name, err)
	}
	for i := range infraClusters.Items {
		if preventsReset(&infraClusters.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}

func preventsReset(o client.Object) bool {
	_, found := o.GetAnnotations()[infrav1.PreventResetAnnotation]
	return found
}

// remainingWait returns how long a machine that is being deleted still waits for its
// host; 0 if the time is over. limited is false while the machine waits without a
// limit: while the host is connected or in maintenance, or its site is offline.
//
// Time in maintenance does not count; the transition time of the condition Ready,
// which is Unknown during maintenance, records its end. Unless the cluster is being
// deleted, only time during which another host of the cluster was connected counts: a
// site that lost its network must not lose its machines.
func (r *releaser) remainingWait(ctx context.Context, s *scope) (wait time.Duration, limited bool, _ error) {
	if s.host.InMaintenance() || s.host.IsConnected() {
		return 0, false, nil
	}
	since := s.machine.DeletionTimestamp.Time
	if ready := meta.FindStatusCondition(s.machine.Status.Conditions, infrav1.ReadyCondition); ready != nil {
		if since = reconcile.Later(since, ready.LastTransitionTime.Time); ready.Reason == infrav1.MaintenanceReason {
			since = r.clock.Now()
		}
	}
	if connection := s.host.Status.Connection; connection != nil {
		since = reconcile.Later(since, connection.Since.Time)
	}
	if s.cluster != nil && s.cluster.DeletionTimestamp.IsZero() {
		witness, found, err := r.othersConnectedSince(ctx, s)
		if err != nil || !found {
			return 0, false, err
		}
		since = reconcile.Later(since, witness)
	}
	timeout := time.Duration(ptr.Deref(s.machine.Spec.Release.DisconnectedTimeoutSeconds, infrav1.DefaultDisconnectedTimeoutSeconds)) * time.Second
	return max(0, since.Add(timeout).Sub(r.clock.Now())), true, nil
}

// othersConnectedSince returns since when another host of the cluster has been
// connected without interruption.
func (r *releaser) othersConnectedSince(ctx context.Context, s *scope) (since time.Time, found bool, _ error) {
	hosts, err := reconcile.ListHosts(ctx, r.client, s.machine.Namespace, r.watchFilter, client.MatchingFields{index.HostByCluster: s.cluster.Name})
	if err != nil {
		return time.Time{}, false, err
	}
	others := slices.DeleteFunc(hosts, func(host *infrav1.ElementalHost) bool { return host.Name == s.host.Name })
	since, found = reconcile.ConnectedSince(others)
	return since, found, nil
}
