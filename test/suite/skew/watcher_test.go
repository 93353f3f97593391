//go:build embedded

package skew

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// usual are the reasons of conditions in the life of a Machine on a sound host. All others are wrong here. AgentDisconnected
// is, too: agents and managers are away for much less than the manager's grace period of two minutes.
func usual() map[string]bool {
	reasons := map[string]bool{}
	for _, reason := range []string{
		clusterv1.NotPausedReason, infrav1.BootstrappingReason, infrav1.BootstrapSucceededReason,
		// ElementalHost.
		infrav1.ConnectedReason, infrav1.ApprovedReason, infrav1.ClockSynchronizedReason, infrav1.PreparedReason,
		infrav1.AvailableReason, infrav1.ClaimedReason, infrav1.MachineFoundReason, infrav1.InUseReason, infrav1.ResettingReason,
		infrav1.CleanReason, infrav1.WaitingForMachineGone, infrav1.NotClaimedReason,
		// ElementalMachine. There may be no free host for a while.
		infrav1.WaitingForOwnerReason, infrav1.WaitingForInfrastructureReason, infrav1.WaitingForBootstrapDataReason,
		infrav1.NoHostReason, infrav1.HostClaimedReason, infrav1.ProvisionedReason, infrav1.WaitingForResetReason, infrav1.DeletingReason,
	} {
		reasons[reason] = true
	}
	return reasons
}

// watcher looks at each state of hosts and machines, from its start to its end.
type watcher struct {
	t       *testing.T
	usual   map[string]bool
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// states is the number of states, and reasons are the reasons in them.
	states  int
	reasons map[string]bool
	// wrong has each thing that was wrong, with the time when it was seen first.
	wrong map[string]time.Time
}

// watch starts a watcher.
func (r *rig) watch() *watcher {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	w := &watcher{t: r.t, usual: usual(), cancel: cancel, reasons: map[string]bool{}, wrong: map[string]time.Time{}}
	r.t.Cleanup(w.stop)
	w.running.Go(func() { w.follow(ctx, r.admin, &infrav1.ElementalHostList{}) })
	w.running.Go(func() { w.follow(ctx, r.admin, &infrav1.ElementalMachineList{}) })
	return w
}

func (w *watcher) stop() {
	w.cancel()
	w.running.Wait()
}

// end stops the watcher and expects that nothing was wrong.
func (w *watcher) end() {
	w.t.Helper()
	w.stop()
	w.t.Logf("%d states of hosts and machines; reasons: %s", w.states, strings.Join(slices.Sorted(maps.Keys(w.reasons)), ", "))
	NewWithT(w.t).Expect(w.wrong).To(BeEmpty(), "what was wrong, and when it was seen first")
}

// follow looks at all objects of a list and at their changes. The API server ends a watch when the CRD is replaced; then
// follow begins anew.
func (w *watcher) follow(ctx context.Context, from client.WithWatch, list client.ObjectList) {
	for ctx.Err() == nil {
		if err := w.watchOnce(ctx, from, list); err != nil && ctx.Err() == nil {
			w.t.Logf("watching %T anew: %v", list, err)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

func (w *watcher) watchOnce(ctx context.Context, from client.WithWatch, list client.ObjectList) error {
	if err := from.List(ctx, list, client.InNamespace(sites)); err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		w.look(obj)
		return nil
	}); err != nil {
		return fmt.Errorf("reading the list: %w", err)
	}
	changes, err := from.Watch(ctx, list, client.InNamespace(sites), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
	})
	if err != nil {
		return fmt.Errorf("beginning a watch: %w", err)
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if change.Type == watch.Error {
			return fmt.Errorf("going on with a watch: %v", change.Object)
		}
		w.look(change.Object)
	}
	return nil
}

// look records what is wrong with an object.
func (w *watcher) look(obj runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states++
	switch o := obj.(type) {
	case *infrav1.ElementalHost:
		of := "host " + o.Name
		w.conditions(of, o.Status.Conditions)
		if o.Spec.Lock != nil || o.Spec.Fence != nil || o.Spec.Quarantine != nil || o.Status.Failures != nil {
			w.record(fmt.Sprintf("%s: lock %+v, fence %+v, quarantine %+v, failures %+v",
				of, o.Spec.Lock, o.Spec.Fence, o.Spec.Quarantine, o.Status.Failures))
		}
	case *infrav1.ElementalMachine:
		of := "machine " + o.Name
		if ref := o.Spec.HostRef; ref != nil {
			of += " on host " + ref.Name
		}
		w.conditions(of, o.Status.Conditions)
	}
}

func (w *watcher) conditions(of string, all []metav1.Condition) {
	for i := range all {
		c := &all[i]
		w.reasons[c.Reason] = true
		if !w.usual[c.Reason] {
			w.record(fmt.Sprintf("%s: %s is %s, %s: %s", of, c.Type, c.Status, c.Reason, c.Message))
		}
	}
}

func (w *watcher) record(what string) {
	if _, known := w.wrong[what]; !known {
		w.wrong[what] = time.Now()
		w.t.Logf("WRONG at %s: %s", time.Now().UTC().Format(time.RFC3339Nano), what)
	}
}
