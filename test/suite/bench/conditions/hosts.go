// Package conditions records how conditions of hosts and clusters change while something happens.
package conditions

import (
	"context"
	"errors"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// errWatchEnded is temporary: API servers end watches regularly.
var errWatchEnded = errors.New("the API server ended a watch")

// Recorder watches the conditions of all hosts and records changes.
type Recorder struct {
	admin     client.WithWatch
	namespace string
	cancel    context.CancelFunc
	ended     chan error
	// before has the initial conditions by host and type.
	before map[string]map[string]metav1.Condition
	// Changes describes the changes; read it after Stop.
	Changes []string
	// Written counts all changes of hosts; read it after Stop.
	Written int
}

// Record starts recording the hosts of a namespace, with the current conditions as the reference. It leaves out hosts by
// name. The caller must call Stop or Cancel.
func Record(ctx context.Context, admin client.WithWatch, namespace string, without ...string) (*Recorder, error) {
	hosts := &infrav1.ElementalHostList{}
	if err := admin.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the conditions of hosts: %w", err)
	}
	v := &Recorder{admin: admin, namespace: namespace, ended: make(chan error, 1), before: map[string]map[string]metav1.Condition{}}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		v.before[h.Name] = map[string]metav1.Condition{}
		for _, c := range h.Status.Conditions {
			v.before[h.Name][c.Type] = c
		}
	}
	for _, name := range without {
		delete(v.before, name)
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

func (v *Recorder) open(ctx context.Context, version string) (watch.Interface, error) {
	w, err := v.admin.Watch(ctx, &infrav1.ElementalHostList{}, &client.ListOptions{
		Namespace: v.namespace, Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true},
	})
	if err != nil {
		return nil, fmt.Errorf("watching hosts: %w", err)
	}
	return w, nil
}

// run watches the hosts until ctx ends, and restarts watches that end.
func (v *Recorder) run(ctx context.Context, w watch.Interface, version string) error {
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
				v.Written++
				v.Changes = append(v.Changes, v.compare(h)...)
			}
		}
	}
}

// compare returns the conditions of a host that differ from the beginning.
func (v *Recorder) compare(h *infrav1.ElementalHost) []string {
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

// Cancel ends the recording without its result.
func (v *Recorder) Cancel() { v.cancel() }

// Stop ends the recording. Changes and Written are complete then.
func (v *Recorder) Stop() error {
	v.cancel()
	return <-v.ended
}
