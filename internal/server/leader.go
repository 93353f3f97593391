package server

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",namespace=system,resources=pods,verbs=patch

const (
	// ServiceName is the name of the Service of the agent API.
	ServiceName = "elemental-agent-api"
	// LeaderLabel is set on the Pod that serves the agent API. The Service selects it.
	LeaderLabel = "infrastructure.cluster.x-k8s.io/elemental-agent-api"
	leaderValue = "leader"
)

// podLabel sets and removes LeaderLabel on the manager's own Pod. A restarted container
// must remove the label that it set before, because another Pod may lead now.
type podLabel struct {
	writer client.Writer
	pod    types.NamespacedName

	once sync.Once
	err  error
}

// clear removes the label, once in a process.
func (l *podLabel) clear(ctx context.Context) error {
	l.once.Do(func() { l.err = l.patch(ctx, "null") })
	return l.err
}

// set sets the label, after clear has succeeded.
func (l *podLabel) set(ctx context.Context) error {
	if err := l.clear(ctx); err != nil {
		return err
	}
	return l.patch(ctx, `"`+leaderValue+`"`)
}

func (l *podLabel) patch(ctx context.Context, value string) error {
	if l.pod.Name == "" {
		return nil
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.pod.Namespace, Name: l.pod.Name}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, LeaderLabel, value)
	if err := l.writer.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("labelling Pod %s: %w", l.pod, err)
	}
	return nil
}

// labelCleaner removes the label at the start of every replica, leader or not.
type labelCleaner struct {
	label *podLabel
}

// Start implements manager.Runnable.
func (c labelCleaner) Start(ctx context.Context) error { return c.label.clear(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (labelCleaner) NeedLeaderElection() bool { return false }
