package endpoint

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// HookPlan says which Machines carry the endpoint's hook. The hook is a pre-terminate
// hook of Cluster API (proposal 20200602-machine-deletion-phase-hooks).
// KubeadmControlPlane removes a Machine's etcd member, and with it the API server, only
// when no other pre-terminate hook is left. So the endpoint leaves the Machine while its
// API server still answers. The zero value removes all hooks.
type HookPlan struct {
	// actions by names of Machines; removeHook for those that are not in the map.
	actions map[string]hookAction
	// hookRemovalReason says why a Machine that is being deleted loses its hook although
	// the endpoint did not move; blank otherwise.
	hookRemovalReason string
}

type hookAction int

const (
	removeHook hookAction = iota
	// keepHook leaves the hook on a Machine that has it.
	keepHook
	// addHook adds the hook, unless the Machine is being deleted already.
	addHook
)

// planHooks adds the hook to the Machine of the endpoint's host. Machines of former
// endpoint hosts keep theirs while p.KeepHooks is true.
func planHooks(s *scope.Scope, c failover.Cluster, d failover.Decision, p failover.Progress) HookPlan {
	plan := HookPlan{actions: map[string]hookAction{}, hookRemovalReason: d.HookRemovalReason}
	policy := s.InfraCluster.Spec.ControlPlaneEndpointPolicy
	if m := c.Member(policy.HostRef.Name); m != nil && m.HasControlPlaneMachine() && d.HookRemovalReason == "" {
		plan.actions[m.Machine.Name] = addHook
	}
	if !p.KeepHooks {
		return plan
	}
	for _, former := range policy.FormerEndpoints {
		if m := c.Member(former.HostName); m != nil && m.HasControlPlaneMachine() && plan.actions[m.Machine.Name] == removeHook {
			plan.actions[m.Machine.Name] = keepHook
		}
	}
	return plan
}

func hasHook(m *clusterv1.Machine) bool {
	_, has := m.Annotations[infrav1.EndpointHookAnnotation]
	return has
}

// Hooks adds the endpoint's hook to Machines, and removes it.
type Hooks struct {
	Client   client.Client
	Recorder events.EventRecorder
}

// Apply adds and removes hooks of the cluster's Machines as planned.
func (h Hooks) Apply(ctx context.Context, infraCluster *infrav1.ElementalCluster, clusterName string, plan HookPlan) error {
	machines := &clusterv1.MachineList{}
	err := h.Client.List(ctx, machines, client.InNamespace(infraCluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.MachineByCluster: clusterName})
	if err != nil {
		return fmt.Errorf("listing Machines of the cluster: %w", err)
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		switch action := plan.actions[m.Name]; {
		case hasHook(m) && action == removeHook:
			err = h.set(ctx, m, false)
			if err == nil && !m.DeletionTimestamp.IsZero() && plan.hookRemovalReason != "" {
				h.Recorder.Eventf(infraCluster, m, corev1.EventTypeWarning, infrav1.NoMoveCandidateReason, "Move",
					"Machine %s is let go with the control plane endpoint: %s", m.Name, plan.hookRemovalReason)
			}
		case !hasHook(m) && action == addHook && m.DeletionTimestamp.IsZero():
			err = h.set(ctx, m, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h Hooks) set(ctx context.Context, machine *clusterv1.Machine, on bool) error {
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
	if err := h.Client.Patch(ctx, after, client.MergeFrom(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing the hook of Machine %s: %w", machine.Name, err)
	}
	return nil
}
