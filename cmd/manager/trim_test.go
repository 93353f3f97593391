package main

import (
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestTrimKeepsAllButManagedFields(t *testing.T) {
	g := NewWithT(t)
	hosts := make([]*infrav1.ElementalHost, 2)
	for i := range hosts {
		hosts[i] = &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"zone": "1"}}}
		hosts[i].Status.Conditions = []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Available", Message: string([]byte("fine")),
		}}
		want := hosts[i].DeepCopy()
		hosts[i].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		g.Expect(trim(hosts[i])).To(Equal(want))
	}
	first, second := &hosts[0].Status.Conditions[0], &hosts[1].Status.Conditions[0]
	g.Expect(unsafe.StringData(first.Message)).To(BeIdenticalTo(unsafe.StringData(second.Message)), "equal texts share memory")
}

// Others may read the object at the same time.
func TestTrimLeavesAloneWhatItHasSeen(t *testing.T) {
	host := &infrav1.ElementalHost{}
	host.Status.Conditions = []metav1.Condition{{Message: "a message"}}
	mine := string([]byte("a message"))
	host.Status.Conditions[0].Message = mine
	if _, err := trim(host); err != nil {
		t.Fatal(err)
	}
	if unsafe.StringData(host.Status.Conditions[0].Message) != unsafe.StringData(mine) {
		t.Error("written again")
	}
	if _, err := trim(struct{}{}); err != nil {
		t.Fatal(err)
	}
}
