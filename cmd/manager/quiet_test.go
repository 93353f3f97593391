package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
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
	const quiet = 3 * time.Second
	return r.settledFor(ctx, g, quiet)
}

// settledFor is settled with another time.
func (r *rig) settledFor(ctx context.Context, g *WithT, quiet time.Duration) measure.Writes {
	const often = 300 * time.Millisecond
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

// look gives the controllers a reason to look at all hosts, Machines and clusters again, and
// waits until they have. It returns the writes that this takes.
func (r *rig) look(ctx context.Context, g *WithT) measure.Writes {
	before, err := looks()
	g.Expect(err).NotTo(HaveOccurred())
	own, objects := measure.Writes{}, map[string]int{}
	for controller, list := range map[string]ctrlclient.ObjectList{
		"elementalhost": &infrav1.ElementalHostList{}, "elementalmachine": &infrav1.ElementalMachineList{}, "elementalcluster": &infrav1.ElementalClusterList{},
	} {
		g.Expect(r.Admin.List(ctx, list, ctrlclient.InNamespace(r.Namespace))).To(Succeed())
		items, err := meta.ExtractList(list)
		g.Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			// An annotation that means nothing.
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/look":%q}}}`, item.(ctrlclient.Object).GetResourceVersion())
			g.Expect(r.Admin.Patch(ctx, item.(ctrlclient.Object), ctrlclient.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		own[measure.Write{Verb: http.MethodPatch, Group: infrav1.GroupVersion.Group, Resource: controller + "s", Code: http.StatusOK}] = len(items)
		objects[controller] = len(items)
	}
	for controller, n := range objects {
		g.Eventually(func() (int, error) {
			now, err := looks()
			return now[controller] - before[controller], err
		}).WithContext(ctx).WithTimeout(soon).Should(BeNumerically(">=", n), controller)
	}
	return own
}

// looks returns how often each controller of this process has looked at an object.
func looks() (map[string]int, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	out := map[string]int{}
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "controller" {
					out[label.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return out, nil
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
