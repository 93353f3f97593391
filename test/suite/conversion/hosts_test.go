package conversion_test

import (
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const cluster = "edge"

// createHost creates a host in v1beta2 whose reboot a is requested, with a status.
func (r *rig) createHost(name string) *infrav1.ElementalHost {
	r.t.Helper()
	host := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, Labels: map[string]string{"rack": "7"}, Annotations: map[string]string{"note": "kept"}},
		Spec: infrav1.ElementalHostSpec{
			HostID: "host-" + name, Approval: infrav1.ApprovalApproved, Hostname: "node-" + name,
			Reboot: &infrav1.HostReboot{ID: "a", RestoreName: "restore"},
		},
	}
	r.Expect(r.client.Create(r.t.Context(), host)).To(Succeed())
	host.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.7"}}
	host.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Free", LastTransitionTime: metav1.NewTime(time.Unix(1e9, 0))}}
	r.Expect(r.client.Status().Update(r.t.Context(), host)).To(Succeed())
	return r.old(name)
}

// request has a client of v1beta3 request the reboots a and b. v1beta2 lacks b, and why.
func (r *rig) request(name string) []Reboot {
	r.t.Helper()
	want := []Reboot{{ID: "a", RestoreName: "restore"}, {ID: "b", Reason: "firmware"}}
	host := r.new(name)
	patch(r, host, func() { host.Spec.Reboots = want })
	r.Expect(r.new(name).Spec.Reboots).To(Equal(want))
	return want
}

// applyAs applies the spec of a host in a version, server-side and without force.
func (r *rig) applyAs(manager, version, name string, spec map[string]any) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(spec)}}
	u.SetAPIVersion(newerGroupVersion.Group + "/" + version)
	u.SetKind("ElementalHost")
	u.SetNamespace(r.namespace)
	u.SetName(name)
	return r.client.Apply(r.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager))
}

func cordon(reason string) map[string]any {
	return map[string]any{"cordon": map[string]any{"reason": reason}}
}

// managers returns who has written which fields of a host in which version, as the API server
// has recorded it for server-side apply.
func managers(host client.Object) []string {
	var all []string
	for _, entry := range host.GetManagedFields() {
		all = append(all, entry.Manager+" in "+strings.TrimPrefix(entry.APIVersion, newerGroupVersion.Group+"/"))
	}
	slices.Sort(all)
	return all
}
