package conversion_test

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	older = "v1beta2"
	newer = "v1beta3"
)

// newerGroupVersion is the version that only this package has.
var newerGroupVersion = schema.GroupVersion{Group: infrav1.GroupVersion.Group, Version: newer}

// Reboot is a request of a reboot in v1beta3.
type Reboot struct {
	ID          string `json:"id,omitempty"`
	RestoreName string `json:"restoreName,omitempty"`
	// Reason has no place in v1beta2.
	Reason string `json:"reason,omitempty"`
}

// ElementalHostSpec is the spec of v1beta3. Its Reboot, of v1beta2, stays nil: the schema lacks it.
type ElementalHostSpec struct {
	infrav1.ElementalHostSpec `json:",inline"`

	// Reboots are carried out one after another. v1beta2 has the first.
	Reboots []Reboot `json:"reboots,omitempty"`
}

// ElementalHost is a host in v1beta3, to and from which other versions are converted.
type ElementalHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`
	Spec              ElementalHostSpec           `json:"spec,omitzero"`
	Status            infrav1.ElementalHostStatus `json:"status,omitzero"`
}

// ElementalHostList is a list of hosts in v1beta3.
type ElementalHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ElementalHost `json:"items"`
}

func addNewer(s *runtime.Scheme) {
	s.AddKnownTypes(newerGroupVersion, &ElementalHost{}, &ElementalHostList{})
	metav1.AddToGroupVersion(s, newerGroupVersion)
}

// DeepCopyObject implements runtime.Object.
func (h *ElementalHost) DeepCopyObject() runtime.Object {
	out := &ElementalHost{TypeMeta: h.TypeMeta, Spec: ElementalHostSpec{Reboots: slices.Clone(h.Spec.Reboots)}}
	h.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	h.Spec.ElementalHostSpec.DeepCopyInto(&out.Spec.ElementalHostSpec)
	h.Status.DeepCopyInto(&out.Status)
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *ElementalHostList) DeepCopyObject() runtime.Object {
	out := &ElementalHostList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*ElementalHost))
	}
	return out
}
