package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// The hook is a pre-terminate hook of Cluster API (proposal 20200602-machine-
// deletion-phase-hooks). KubeadmControlPlane removes a machine's etcd member, and
// with it its API server, only when no other such hook is left, so the endpoint
// leaves the machine while its API server still answers.

// hold decides which Machines carry the hook: that of the endpoint's host, and
// those that the endpoint left but that others still depend on.
func hold(s *scope, c failover.Cluster, d failover.Decision, p failover.Progress) {
	s.hooks = map[string]hook{}
	if m := c.Member(s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name); m != nil && m.Holds() && d.Stranded == "" {
		s.hooks[m.Machine.Name] = hookOn
	}
	if d.Stranded != "" {
		s.stranded = d.Stranded
	}
	if !p.Hold {
		return
	}
	for _, former := range s.infraCluster.Spec.ControlPlaneEndpointPolicy.FormerEndpoints {
		if m := c.Member(former.HostName); m != nil && m.Holds() && s.hooks[m.Machine.Name] == hookOff {
			s.hooks[m.Machine.Name] = hookKept
		}
	}
}

// hook says what becomes of a Machine's hook.
type hook int

const (
	// hookOff: there shall be none.
	hookOff hook = iota
	// hookKept: it stays where it is.
	hookKept
	// hookOn: there shall be one, unless the Machine is being deleted already.
	hookOn
)

func hasHook(m *clusterv1.Machine) bool {
	_, has := m.Annotations[infrav1.EndpointHookAnnotation]
	return has
}

// reconcileHooks puts hooks onto the Machines that scope.hooks names and takes
// them off all others.
func (r *Reconciler) reconcileHooks(ctx context.Context, s *scope) (ctrl.Result, error) {
	return ctrl.Result{}, r.setHooks(ctx, s, s.cluster.Name)
}

func (r *Reconciler) setHooks(ctx context.Context, s *scope, clusterName string) error {
	machines := &clusterv1.MachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(s.infraCluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.MachineByCluster: clusterName})
	if err != nil {
		return fmt.Errorf("listing Machines of the cluster: %w", err)
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		switch want := s.hooks[m.Name]; {
		case hasHook(m) && want == hookOff:
			err = r.setHook(ctx, m, false)
			if err == nil && !m.DeletionTimestamp.IsZero() && s.stranded != "" {
				r.Recorder.Eventf(s.infraCluster, m, corev1.EventTypeWarning, infrav1.NoMoveCandidateReason, "Move",
					"Machine %s is let go with the control plane endpoint: %s", m.Name, s.stranded)
			}
		case !hasHook(m) && want == hookOn && m.DeletionTimestamp.IsZero():
			err = r.setHook(ctx, m, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) setHook(ctx context.Context, machine *clusterv1.Machine, on bool) error {
	ctrl.LoggerFrom(ctx).Info("Changing the endpoint's hook", "Machine", klog.KObj(machine), "on", on)
	after := machine.DeepCopy()
	if on {
		if after.Annotations == nil {
			after.Annotations = map[string]string{}
		}
		after.Annotations[infrav1.EndpointHookAnnotation] = ""
	} else {
		delete(after.Annotations, infrav1.EndpointHookAnnotation)
	}
	if err := r.Client.Patch(ctx, after, client.MergeFrom(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing the hook of Machine %s: %w", machine.Name, err)
	}
	return nil
}

// controlPlaneEnding reports whether the cluster's control plane is being deleted,
// or was.
func (r *Reconciler) controlPlaneEnding(ctx context.Context, s *scope) (bool, error) {
	controlPlane, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, s.cluster.Spec.ControlPlaneRef, s.cluster.Namespace)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting control plane: %w", err)
	}
	return !controlPlane.GetDeletionTimestamp().IsZero(), nil
}
