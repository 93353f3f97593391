package etcdrestore

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

// consider shows what the restore would do, and begins it if a person has confirmed it.
func (r *Reconciler) consider(ctx context.Context, s *scope) error {
	r.readUploaded(ctx, s)
	if err := r.readRebuild(ctx, s); err != nil {
		return err
	}
	if refusal := etcdrestore.Refusal(s.facts); refusal != "" {
		s.restore.Status.Plan = nil
		s.condition = no(infrav1.RestoreRefusedReason, "%s", refusal)
		return nil
	}
	plan := etcdrestore.Plan(s.facts)
	s.restore.Status.Plan = plan
	if s.restore.Spec.Confirm != s.restore.Spec.ClusterName {
		lost := fmt.Sprintf("what was written after %s is lost", plan.Snapshot.CompletedAt.UTC())
		if s.restore.Spec.Source.Survivor != nil {
			lost = "what only the lost members had is lost"
		}
		s.condition = no(infrav1.RestoreNotConfirmedReason, "Read status.plan; %s. To begin, set spec.confirm to %s", lost, s.restore.Spec.ClusterName)
		return nil
	}
	request := &infrav1.EtcdRestoreRequest{
		ID: inplace.NewRequestID(s.host.Spec.Claim), HostName: plan.HostName, SHA256: plan.Snapshot.SHA256,
		Others: record(s.facts.Others()), LaterNodes: record(s.facts.LaterNodes()),
	}
	ctrl.LoggerFrom(ctx).Info("Beginning a restore of etcd", "ElementalHost", klog.KObj(s.host), "snapshot", plan.Snapshot.ID, "request", request.ID)
	if err := r.patchRestore(ctx, s, "beginning the restore", func(restore *infrav1.ElementalEtcdRestore) {
		restore.Spec.Request = request
		controllerutil.AddFinalizer(restore, infrav1.EtcdRestoreFinalizer)
		if restore.Annotations == nil {
			restore.Annotations = map[string]string{}
		}
		// Neither half of a restore is to be moved to another management cluster.
		restore.Annotations[clusterctlv1.BlockMoveAnnotation] = ""
	}); err != nil {
		return err
	}
	return r.proceed(ctx, s)
}

// proceed pauses the Cluster, halts the other control planes, has the host restore etcd, waits for
// the result, and has the Machines of the other hosts replaced and later Nodes registered again.
func (r *Reconciler) proceed(ctx context.Context, s *scope) error {
	request := s.restore.Spec.Request
	switch {
	case s.facts.Cluster == nil || s.host == nil:
		// A restore of the management cluster may create them later.
		s.condition = no(infrav1.RestoreWaitingForHostReason,
			"Cluster %s is not there, or host %s does not belong to it", s.restore.Spec.ClusterName, etcdrestore.HostName(s.restore))
		return nil
	case s.host.Spec.Claim.Phase != infrav1.ClaimBound:
		return r.conclude(ctx, s, infrav1.EtcdRestoreNotServing, fmt.Sprintf("Host %s is being released, or held", s.host.Name))
	}
	op := s.host.Operation(infrav1.OperationEtcdRestore, request.ID)
	if result, message := resultOf(op); result != "" {
		if result == infrav1.EtcdRestoreSucceeded {
			if err := r.replaceOthers(ctx, s); err != nil {
				return err
			}
			isBack, err := r.rebootLaterNodes(ctx, s)
			if err != nil || !isBack {
				return err
			}
		}
		return r.conclude(ctx, s, result, fmt.Sprintf("Host %s: %s", s.host.Name, message))
	}
	isPaused, err := r.pause(ctx, s)
	if err != nil || !isPaused {
		return err
	}
	if !isRequested(s) {
		if isSame, err := r.compare(ctx, s); err != nil || !isSame {
			return err
		}
		isHalted, err := r.haltOthers(ctx, s)
		if err != nil || !isHalted {
			return err
		}
		if err := r.request(ctx, s); err != nil {
			return err
		}
	}
	s.condition = progress(s, op)
	return nil
}

// pause pauses the Cluster for the restore, and returns false if somebody else has paused it. A
// restore that another one was faster than ends: it was confirmed for what the other one replaces.
func (r *Reconciler) pause(ctx context.Context, s *scope) (paused bool, err error) {
	if etcdrestore.IsPausedFor(s.facts.Cluster, s.restore.Name) {
		return true, nil
	}
	if other := s.facts.Cluster.Annotations[infrav1.RestoreAnnotation]; other != "" && other != s.restore.Name {
		return false, r.conclude(ctx, s, infrav1.EtcdRestoreFailed, fmt.Sprintf("ElementalEtcdRestore %s of the Cluster goes on; this one has changed nothing", other))
	}
	if ptr.Deref(s.facts.Cluster.Spec.Paused, false) {
		s.condition = no(infrav1.RestoreWaitingForHostReason, "Somebody else has paused Cluster %s; the restore begins after that", s.facts.Cluster.Name)
		return false, nil
	}
	return true, r.patchCluster(ctx, s, "pausing Cluster", func(c *clusterv1.Cluster) {
		c.Spec.Paused = new(true)
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[infrav1.RestoreAnnotation] = s.restore.Name
	})
}

// compare reports whether the restore still does what a person has confirmed, now that Cluster API
// changes nothing any more. If it does not, it ends before it has changed anything on its host.
func (r *Reconciler) compare(ctx context.Context, s *scope) (same bool, err error) {
	if plan := s.restore.Status.Plan; plan != nil {
		s.facts.Uploaded.Snapshot = plan.Snapshot
	} else {
		r.readUploaded(ctx, s)
	}
	if reason := s.facts.Uploaded.Reason(); reason != "" {
		s.condition = no(infrav1.RestoreWaitingForHostReason, "%s", reason)
		return false, nil
	}
	if change := etcdrestore.Changed(s.facts); change != "" {
		return false, r.conclude(ctx, s, infrav1.EtcdRestoreFailed, "Nothing was done, because the cluster has changed since the restore was confirmed: "+change)
	}
	return true, nil
}

// request has the host restore etcd.
func (r *Reconciler) request(ctx context.Context, s *scope) error {
	want := &infrav1.HostEtcdRestore{
		ID: s.restore.Spec.Request.ID, RestoreName: s.restore.Name, SHA256: s.restore.Spec.Request.SHA256, ReplaceHealthy: s.restore.Spec.ReplaceHealthy,
		RebuildControlPlane: s.restore.Spec.RebuildControlPlane,
	}
	switch source := s.restore.Spec.Source; {
	case source.Uploaded != nil:
		want.SnapshotID, want.Uploaded = source.Uploaded.ID, new(true)
	case source.Snapshot != nil:
		want.SnapshotID = source.Snapshot.ID
	}
	return r.patchHost(ctx, s.host, "requesting the restore from", func(h *infrav1.ElementalHost) { h.Spec.EtcdRestore = want })
}

// isRequested reports whether the host has the request.
func isRequested(s *scope) bool {
	is := s.host.Spec.EtcdRestore
	return is != nil && is.ID == s.restore.Spec.Request.ID
}

func (r *Reconciler) patchRestore(ctx context.Context, s *scope, doing string, change func(*infrav1.ElementalEtcdRestore)) error {
	return reconcile.PatchSpec(ctx, r.Client, s.restore, statusOf, doing, change)
}

func (r *Reconciler) patchHost(ctx context.Context, host *infrav1.ElementalHost, doing string, change func(*infrav1.ElementalHost)) error {
	status := func(h *infrav1.ElementalHost) *infrav1.ElementalHostStatus { return &h.Status }
	return reconcile.PatchSpec(ctx, r.Client, host, status, fmt.Sprintf("%s host %s", doing, host.Name), change)
}

func (r *Reconciler) patchCluster(ctx context.Context, s *scope, doing string, change func(*clusterv1.Cluster)) error {
	status := func(c *clusterv1.Cluster) *clusterv1.ClusterStatus { return &c.Status }
	return reconcile.PatchSpec(ctx, r.Client, s.facts.Cluster, status, doing+" "+s.facts.Cluster.Name, change)
}
