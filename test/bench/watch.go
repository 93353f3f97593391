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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/table"
)

// errWatchEnded is temporary: API servers end watches now and then.
var errWatchEnded = errors.New("the API server ended a watch")

// watchProvisioned watches the ElementalMachines of a Cluster.
func (g *rig) watchProvisioned(ctx context.Context, cluster string) (watch.Interface, error) {
	w, err := g.admin.Watch(ctx, &infrav1.ElementalMachineList{}, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return nil, fmt.Errorf("watching machines: %w", err)
	}
	return w, nil
}

// awaitProvisioned waits until so many machines are provisioned.
func (g *rig) awaitProvisioned(ctx context.Context, w watch.Interface, count int) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	said := time.Now()
	done := map[string]bool{}
	for len(done) < count {
		select {
		case e, ok := <-w.ResultChan():
			m, isMachine := e.Object.(*infrav1.ElementalMachine)
			if !ok || !isMachine {
				return fmt.Errorf("waiting for machines: %w", errWatchEnded)
			}
			if provisioned(m) {
				done[m.Name] = true
			}
			if time.Since(said) > 10*time.Second {
				said = time.Now()
				g.progress.Say("%s of %s machines are provisioned", table.Count(len(done)), table.Count(count))
			}
		case <-limit.C:
			return fmt.Errorf("only %d of %d machines are provisioned after %s", len(done), count, patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-g.cluster.Done():
			return g.cluster.Err()
		}
	}
	return nil
}

// vigil watches the conditions of all hosts and takes down each that changes.
type vigil struct {
	g      *rig
	cancel context.CancelFunc
	ended  chan error
	// before are the conditions at the beginning, by host and type.
	before map[string]map[string]metav1.Condition
	// changes are what was seen since, once ended has been received from.
	changes []string
	// written counts changes of hosts of any kind.
	written int
}

// startVigil begins with the conditions as they are.
func (g *rig) startVigil(ctx context.Context) (*vigil, error) {
	hosts := &infrav1.ElementalHostList{}
	if err := g.admin.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the conditions of hosts: %w", err)
	}
	v := &vigil{g: g, ended: make(chan error, 1), before: map[string]map[string]metav1.Condition{}}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		v.before[h.Name] = map[string]metav1.Condition{}
		for _, c := range h.Status.Conditions {
			v.before[h.Name][c.Type] = c
		}
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

func (v *vigil) open(ctx context.Context, version string) (watch.Interface, error) {
	w, err := v.g.admin.Watch(ctx, &infrav1.ElementalHostList{}, &client.ListOptions{
		Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true},
	})
	if err != nil {
		return nil, fmt.Errorf("watching hosts: %w", err)
	}
	return w, nil
}

// run follows the hosts, over several watches if need be, until ctx ends.
func (v *vigil) run(ctx context.Context, w watch.Interface, version string) error {
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

// compare lists the conditions of a host that say something else than at the beginning.
func (v *vigil) compare(h *infrav1.ElementalHost) []string {
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

// stop ends the vigil; what it saw is there then.
func (v *vigil) stop() error {
	v.cancel()
	return <-v.ended
}
