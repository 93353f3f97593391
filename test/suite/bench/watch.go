package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

// errWatchEnded is temporary: API servers end watches regularly.
var errWatchEnded = errors.New("the API server ended a watch")

// watchProvisioned watches the ElementalMachines of a Cluster.
func (m *machineClient) watchProvisioned(ctx context.Context, cluster string) (watch.Interface, error) {
	w, err := m.admin.Watch(ctx, &infrav1.ElementalMachineList{}, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return nil, fmt.Errorf("watching machines: %w", err)
	}
	return w, nil
}

// awaitProvisioned waits until count machines are provisioned.
func (m *machineClient) awaitProvisioned(ctx context.Context, w watch.Interface, count int) error {
	limit := time.NewTimer(stepTimeout)
	defer limit.Stop()
	said := time.Now()
	done := map[string]bool{}
	for len(done) < count {
		select {
		case e, ok := <-w.ResultChan():
			machine, isMachine := e.Object.(*infrav1.ElementalMachine)
			if !ok || !isMachine {
				return fmt.Errorf("waiting for machines: %w", errWatchEnded)
			}
			if provisioned(machine) {
				done[machine.Name] = true
			}
			if time.Since(said) > 10*time.Second {
				said = time.Now()
				m.progress.Say("%s of %s machines are provisioned", table.Count(len(done)), table.Count(count))
			}
		case <-limit.C:
			return fmt.Errorf("only %d of %d machines are provisioned after %s", len(done), count, stepTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.cluster.Done():
			return m.cluster.Err()
		}
	}
	return nil
}

// conditionRecorder watches the conditions of all hosts and records changes.
type conditionRecorder struct {
	g      *rig
	cancel context.CancelFunc
	ended  chan error
	// before has the initial conditions by host and type.
	before map[string]map[string]metav1.Condition
	// changes describes the changes; read it after stop.
	changes []string
	// written counts all changes of hosts.
	written int
}

// recordConditions starts recording, with the current conditions as the reference. It leaves out the hosts of probes.
func (g *rig) recordConditions(ctx context.Context, without ...*probe) (*conditionRecorder, error) {
	hosts := &infrav1.ElementalHostList{}
	if err := g.admin.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the conditions of hosts: %w", err)
	}
	v := &conditionRecorder{g: g, ended: make(chan error, 1), before: map[string]map[string]metav1.Condition{}}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		v.before[h.Name] = map[string]metav1.Condition{}
		for _, c := range h.Status.Conditions {
			v.before[h.Name][c.Type] = c
		}
	}
	for _, p := range without {
		delete(v.before, p.name)
	}
	ctx, v.cancel = context.WithCancel(ctx)
	version := hosts.ResourceVersion
	first, err := v.open(ctx, version)
	if err != nil {
		v.cancel()
		return nil, err
	}
	go func() { v.ended <- v.run(ctx, first, version) }()
	return v, nil
}

func (v *conditionRecorder) open(ctx context.Context, version string) (watch.Interface, error) {
	w, err := v.g.admin.Watch(ctx, &infrav1.ElementalHostList{}, &client.ListOptions{
		Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true},
	})
	if err != nil {
		return nil, fmt.Errorf("watching hosts: %w", err)
	}
	return w, nil
}

// run watches the hosts until ctx ends, and restarts watches that end.
func (v *conditionRecorder) run(ctx context.Context, w watch.Interface, version string) error {
	for {
		select {
		case <-ctx.Done():
			w.Stop()
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				again, err := v.open(ctx, version)
				if err != nil && ctx.Err() == nil {
					return err
				}
				if err == nil {
					w = again
				}
				continue
			}
			h, isHost := e.Object.(*infrav1.ElementalHost)
			if !isHost {
				return fmt.Errorf("watching hosts: %w", errWatchEnded)
			}
			version = h.ResourceVersion
			if e.Type != watch.Bookmark {
				v.written++
				v.changes = append(v.changes, v.compare(h)...)
			}
		}
	}
}

// compare returns the conditions of a host that differ from the beginning.
func (v *conditionRecorder) compare(h *infrav1.ElementalHost) []string {
	var out []string
	for kind, was := range v.before[h.Name] {
		is := apimeta.FindStatusCondition(h.Status.Conditions, kind)
		switch {
		case is == nil:
			out = append(out, fmt.Sprintf("%s: %s is gone", h.Name, kind))
		case is.Status != was.Status || is.Reason != was.Reason:
			out = append(out, fmt.Sprintf("%s: %s was %s %s and is %s %s", h.Name, kind, was.Status, was.Reason, is.Status, is.Reason))
		}
	}
	return out
}

// stop ends the recording. changes and written are complete then.
func (v *conditionRecorder) stop() error {
	v.cancel()
	return <-v.ended
}
