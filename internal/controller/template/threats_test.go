package template_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/template"
)

// strangers are changes after which a host is not admitted.
func strangers() map[string]func(*infrav1.ElementalHost) {
	return map[string]func(*infrav1.ElementalHost){
		"pending":  func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending },
		"rejected": func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
		"locked":   func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
		"fenced":   func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} },
	}
}

// Whoever can enrol a host could otherwise make the cluster autoscaler take all Nodes for
// tiny ones, or a group without hosts for one that can grow.
func TestThreat57_CapacityOfStrangers(t *testing.T) {
	f := newFixture(t)
	o := f.template("t", nil)
	for name, change := range strangers() {
		f.Host(name, hardware(1, 1), arm, change)
	}
	f.Expect(summary(f.update(o))).To(Equal("0 of 0 free, cpu 0, memory 0, /"))
	f.Host("honest", hardware(8, 16), used)
	f.Expect(summary(f.update(o))).To(Equal("0 of 1 free, cpu 8, memory 16Gi, linux/amd64"))
}

// What hosts report that are not admitted wakes no template. Their admission does, and its
// loss, whether the host is free or not.
func TestThreat57_ReportsOfStrangers(t *testing.T) {
	f := newFixture(t)
	f.template("t", nil)
	handler := template.HostHandler(f.reconciler)
	for name, change := range strangers() {
		before := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
		before.ResourceVersion = "1"
		hardware(8, 16)(before)
		used(before)
		change(before)
		update := func(change func(*infrav1.ElementalHost)) []string {
			after := before.DeepCopy()
			after.ResourceVersion = "2"
			change(after)
			return drain(func(q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
				handler.Update(f.Ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			})
		}
		f.Expect(update(hardware(1, 1))).To(BeEmpty(), name)
		f.Expect(update(func(h *infrav1.ElementalHost) {
			h.Spec.Approval, h.Spec.Lock, h.Spec.Fence = infrav1.ApprovalApproved, nil, nil
		})).To(ConsistOf("t"), name)
	}
}
