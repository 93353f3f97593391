package cluster_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestChangesThatEnqueueARunningCluster(t *testing.T) {
	f := newFleet(t)
	for name, tc := range map[string]struct {
		host   string
		change func(*infrav1.ElementalHost)
		want   bool
	}{
		"a probe": {"h2", func(h *infrav1.ElementalHost) { h.Status.Endpoint.Probe.Result = infrav1.ProbeUnreachable }, true},
		"a connection": {"h2", func(h *infrav1.ElementalHost) {
			h.Status.Connection.State = infrav1.ConnectionDisconnected
		}, true},
		"an address":   {"h1", func(h *infrav1.ElementalHost) { h.Status.Addresses = nil }, true},
		"a release":    {"h1", func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }, true},
		"end of claim": {"h1", func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, true},
		"a bootstrap":  {"h4", func(h *infrav1.ElementalHost) { h.Status.Operations[0].State = infrav1.OperationRunning }, true},
		"a step":       {"h4", func(h *infrav1.ElementalHost) { h.Status.Operations[0].Step = "runcmd" }, false},
		"an agent":     {"h1", func(h *infrav1.ElementalHost) { h.Status.Agent = &infrav1.HostAgent{BootID: "2"} }, false},
		"a host of another cluster": {"h2", func(h *infrav1.ElementalHost) {
			h.Spec.Claim.ClusterName, h.Status.Endpoint.Probe = "d", nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.hostNamed(tc.host).DeepCopy()
			after := before.DeepCopy()
			after.ResourceVersion = "later"
			tc.change(after)
			change := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
			q := enqueued(f.reconciler.EndpointHosts(), change)
			enqueuedNow := slices.Concat(q.now, q.soon, q.later)
			if tc.want {
				NewWithT(t).Expect(enqueuedNow).To(ConsistOf(f.request()))
			} else {
				NewWithT(t).Expect(enqueuedNow).To(BeEmpty())
			}
		})
	}
	t.Run("a worker, with a delay", func(t *testing.T) {
		g := NewWithT(t)
		before := f.hostNamed("h2").DeepCopy()
		before.Spec.Claim.Role = infrav1.RoleWorker
		after := before.DeepCopy()
		after.ResourceVersion = "later"
		after.Spec.Claim.Phase = infrav1.ClaimReleasing
		change := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
		q := enqueued(f.reconciler.EndpointHosts(), change)
		g.Expect(q.now).To(BeEmpty())
		g.Expect(q.soon).To(ConsistOf(f.request()))
	})
	t.Run("a free host, not at all", func(t *testing.T) {
		before := f.host("h9", "10.0.0.9")
		after := before.DeepCopy()
		after.ResourceVersion = "later"
		after.Labels = map[string]string{"a": "b"}
		NewWithT(t).Expect(enqueued(f.reconciler.EndpointHosts(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}).now).To(BeEmpty())
	})
	for name, tc := range map[string]struct {
		change func(*clusterv1.Machine)
		want   bool
	}{
		"a deletion": {func(m *clusterv1.Machine) { m.DeletionTimestamp = &m.CreationTimestamp }, true},
		"a hook":     {func(m *clusterv1.Machine) { m.Annotations = nil }, true},
		"a phase":    {func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, false},
	} {
		t.Run("Machine: "+name, func(t *testing.T) {
			f.Refresh(f.machines["h1"])
			after := f.machines["h1"].DeepCopy()
			tc.change(after)
			enqueuedNow := enqueued(f.reconciler.EndpointMachines(), event.UpdateEvent{ObjectOld: f.machines["h1"], ObjectNew: after}).now
			if tc.want {
				NewWithT(t).Expect(enqueuedNow).To(ConsistOf(f.request()))
			} else {
				NewWithT(t).Expect(enqueuedNow).To(BeEmpty())
			}
		})
	}
}
