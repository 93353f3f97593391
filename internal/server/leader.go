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
	// LeaderLabel is on the Pod that serves the agent API; the Service selects it.
	LeaderLabel = "infrastructure.cluster.x-k8s.io/elemental-agent-api"
	leaderValue = "leader"
)

// podLabel marks the own Pod as the one that serves. A container that restarts
// finds the mark of its former life and must take it away before another leader
// sets its own.
type podLabel struct {
	writer client.Writer
	pod    types.NamespacedName

	once sync.Once
	err  error
}

// clear takes the mark away, once in a process.
func (l *podLabel) clear(ctx context.Context) error {
	l.once.Do(func() { l.err = l.patch(ctx, "null") })
	return l.err
}

// set marks the Pod, after a stale mark was cleared.
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

// follower clears the mark at the start of every replica.
type follower struct {
	label *podLabel
}

// Start implements manager.Runnable.
func (f follower) Start(ctx context.Context) error { return f.label.clear(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (follower) NeedLeaderElection() bool { return false }
