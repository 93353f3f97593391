package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

// written returns all writes except renewals of leases, and updates of Event series, which
// the recorder writes minutes later.
func (r *rig) written(ctx context.Context) (measure.Writes, error) {
	all, err := r.api.Writes(ctx)
	return all.Only(func(w measure.Write) bool { return !w.Lease() && (!w.Event() || w.Verb != http.MethodPatch) }), err
}

// ours reports whether a write was accepted and is to one of the provider's kinds or a
// Secret.
func ours(w measure.Write) bool {
	return w.Accepted() && (w.Group == infrav1.GroupVersion.Group || w.Group == "" && w.Resource == "secrets")
}

// settled waits until the controllers have had nothing to do for some seconds and there was no
// write, and returns all writes. Events are written asynchronously.
func (r *rig) settled(ctx context.Context, g *WithT) measure.Writes {
	const quiet, often = 3 * time.Second, 300 * time.Millisecond
	var last measure.Writes
	since := time.Now()
	g.Eventually(func() (time.Duration, error) {
		now, err := r.written(ctx)
		if err != nil {
			return 0, err
		}
		isIdle, err := idle()
		if err != nil {
			return 0, err
		}
		if len(now.Since(last)) > 0 || !isIdle {
			last, since = now, time.Now()
		}
		return time.Since(since), nil
	}).WithContext(ctx).WithTimeout(soon).WithPolling(often).Should(BeNumerically(">", quiet))
	return last
}

// idle reports whether no controller of this process works or has work in its queue.
func idle() (bool, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return false, fmt.Errorf("reading metrics: %w", err)
	}
	for _, f := range families {
		if name := f.GetName(); name != "workqueue_depth" && name != "controller_runtime_active_workers" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetGauge().GetValue() > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}
