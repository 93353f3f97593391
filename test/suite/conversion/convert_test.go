package conversion_test

import (
	"context"
	"fmt"

	utilconversion "sigs.k8s.io/cluster-api/util/conversion"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// convertToNewer converts a host of v1beta2.
func convertToNewer(_ context.Context, from *infrav1.ElementalHost, to *ElementalHost) error {
	from = from.DeepCopy()
	to.ObjectMeta, to.Status = from.ObjectMeta, from.Status
	to.Spec = ElementalHostSpec{ElementalHostSpec: from.Spec}
	to.Spec.Reboot = nil
	saved := &ElementalHost{}
	if _, err := utilconversion.UnmarshalData(to, saved); err != nil {
		return fmt.Errorf("reading the annotation %s: %w", utilconversion.DataAnnotation, err)
	}
	to.Spec.Reboots = rebootsOf(from.Spec.Reboot, saved.Spec.Reboots)
	return nil
}

// rebootsOf returns what was saved, unless a client of v1beta2 has changed the request since.
// Its decision is the whole list then: who removes the request that v1beta2 shows wants no
// reboot at all.
func rebootsOf(is *infrav1.HostReboot, saved []Reboot) []Reboot {
	if is == nil {
		return nil
	}
	if shown := shownReboot(saved); shown != nil && *shown == *is {
		return saved
	}
	return []Reboot{{ID: is.ID, RestoreName: is.RestoreName}}
}

// shownReboot returns what v1beta2 has of the requests.
func shownReboot(all []Reboot) *infrav1.HostReboot {
	if len(all) == 0 {
		return nil
	}
	return &infrav1.HostReboot{ID: all[0].ID, RestoreName: all[0].RestoreName}
}

// convertToOlder converts a host to v1beta2, with an annotation for what v1beta2 lacks.
// The annotation has only that, and is absent if v1beta2 lacks nothing: Cluster API's own
// conversions annotate every object with all of it, which doubles what is stored.
func convertToOlder(_ context.Context, from *ElementalHost, to *infrav1.ElementalHost) error {
	from = from.DeepCopyObject().(*ElementalHost)
	to.ObjectMeta, to.Status, to.Spec = from.ObjectMeta, from.Status, from.Spec.ElementalHostSpec
	to.Spec.Reboot = shownReboot(from.Spec.Reboots)
	delete(to.Annotations, utilconversion.DataAnnotation)
	if len(from.Spec.Reboots) == 0 || (len(from.Spec.Reboots) == 1 && from.Spec.Reboots[0].Reason == "") {
		return nil
	}
	lacking := &ElementalHost{Spec: ElementalHostSpec{Reboots: from.Spec.Reboots}}
	if err := utilconversion.MarshalData(lacking, to); err != nil {
		return fmt.Errorf("writing the annotation %s: %w", utilconversion.DataAnnotation, err)
	}
	return nil
}
