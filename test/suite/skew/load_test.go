//go:build embedded

package skew

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

const cluster = "load"

// load creates Machines and deletes them when they are provisioned.
type load struct {
	r        *rig
	client   *machines.Client
	next     atomic.Int32
	finished atomic.Int32
	running  sync.WaitGroup
	stop     chan struct{}

	mu     sync.Mutex
	faults []error
}

// newLoad starts count workers, each with one Machine at a time.
func (r *rig) newLoad(count int) *load {
	r.t.Helper()
	l := &load{r: r, stop: make(chan struct{}), client: &machines.Client{
		Admin: r.admin, Namespace: sites, Cluster: r.management, Progress: shell.NewProgress(os.Stderr),
	}}
	r.Expect(l.client.CreateCluster(r.t.Context(), cluster)).To(Succeed())
	r.Expect(l.client.Release(r.t.Context(), cluster)).To(Succeed())
	for range count {
		l.running.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if err := l.cycle(r.t.Context()); err != nil {
					l.mu.Lock()
					l.faults = append(l.faults, err)
					l.mu.Unlock()
					return
				}
				l.finished.Add(1)
			}
		})
	}
	return l
}

// goOn waits until some more Machines than now have come and gone.
func (l *load) goOn(count int32) {
	l.r.t.Helper()
	finished := l.finished.Load()
	l.r.Eventually(l.finished.Load).Should(BeNumerically(">=", finished+count))
}

// end stops the load after the Machines that are under way, and returns how many there were.
func (l *load) end() int {
	l.r.t.Helper()
	close(l.stop)
	l.running.Wait()
	l.r.Expect(l.faults).To(BeEmpty())
	return int(l.finished.Load())
}

// cycle is the life of one Machine. Only its time limit ends it: the manager and its webhooks are away now and then.
func (l *load) cycle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	name := fmt.Sprintf("%s-%04d", cluster, l.next.Add(1))
	key := client.ObjectKey{Namespace: sites, Name: name}
	owner, infra := &clusterv1.Machine{}, &infrav1.ElementalMachine{}
	for _, step := range []struct {
		name string
		try  func() bool
	}{
		{"being created", func() bool {
			if l.client.CreateMachine(ctx, cluster, name) == nil {
				return true
			}
			// The ElementalMachine is the last. If it is there, only the answer was lost.
			if err := l.r.admin.Get(ctx, key, infra); !apierrors.IsNotFound(err) {
				return err == nil
			}
			// It needs the webhook. Remove what is there, and begin anew.
			for _, obj := range []client.Object{&corev1.Secret{}, &clusterv1.Machine{}} {
				obj.SetNamespace(sites)
				obj.SetName(name)
				_ = l.r.admin.Delete(ctx, obj)
			}
			return false
		}},
		{"being provisioned", func() bool {
			err := l.r.admin.Get(ctx, key, infra)
			return err == nil && infra.Status.Initialization.Provisioned != nil && *infra.Status.Initialization.Provisioned
		}},
		{"being deleted", func() bool { return l.r.admin.Delete(ctx, infra) == nil }},
		{"being released", func() bool { return apierrors.IsNotFound(l.r.admin.Get(ctx, key, infra)) }},
		{"being forgotten", func() bool {
			owner.Namespace, owner.Name = sites, name
			return l.r.admin.Delete(ctx, owner) == nil
		}},
	} {
		for !step.try() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("machine %s: %s: %w; %+v", name, step.name, context.Cause(ctx), infra.Status.Conditions)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}
