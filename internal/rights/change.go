package rights

import (
	"cmp"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// free is the class of fields that need nothing but update.
const free Verb = ""

// OfHost returns the verbs that a change of a host's spec needs. before is a blank spec if the
// host is created.
func OfHost(before, after infrav1.ElementalHostSpec) []Verb {
	before.Approval = cmp.Or(before.Approval, infrav1.ApprovalPending)
	after.Approval = cmp.Or(after.Approval, infrav1.ApprovalPending)
	needed := ofFields(before, after, classOfHost)
	if erase(before.Claim) != erase(after.Claim) {
		needed = append(needed, Erase)
	}
	return needed
}

// OfMachine returns the verbs that a change of a machine's spec needs, also that of a template.
// before is a blank spec if the object is created.
func OfMachine(before, after infrav1.ElementalMachineSpec) []Verb {
	var needed []Verb
	if before.OSImage != after.OSImage {
		needed = append(needed, Install)
	}
	if before.Release.EraseDataDisks != after.Release.EraseDataDisks {
		needed = append(needed, Erase)
	}
	return needed
}

// OfRestore returns the verbs that a change of the spec of an ElementalEtcdRestore needs. before
// is a blank spec if the object is created.
func OfRestore(before, after infrav1.ElementalEtcdRestoreSpec) []Verb {
	return ofFields(before, after, classOfRestore)
}

// classOfHost returns the verb that a change of a field needs; false if the field is not known.
func classOfHost(field string) (Verb, bool) {
	switch field {
	case "Identity", "Lock", "Approval", "HostID", "RegistrationRef", "PendingReason":
		return Approve, true
	case "GrantedTo", "GrantedFrom":
		return Grant, true
	case "Fence":
		return Fence, true
	case "Claim", "Adoption":
		return Release, true
	case "OSUpgrade", "Bundle", "NodeUpgrade":
		return Install, true
	case "EtcdRestore", "ControlPlaneHalt":
		return Restore, true
	case "LogRequest":
		return Logs, true
	case "Cordon", "Maintenance", "MaintenanceEndedAt", "Quarantine", "Reboot", "CertificateRenewal", "Hostname":
		return free, true
	default:
		return free, false
	}
}

// classOfRestore is classOfHost for an ElementalEtcdRestore. Without a confirmation nothing
// happens, so everybody who may create one may look at its plan.
func classOfRestore(field string) (Verb, bool) {
	switch field {
	case "Confirm", "Request", "ReplaceHealthy", "RebuildControlPlane":
		return Restore, true
	case "ClusterName", "Source":
		return free, true
	default:
		return free, false
	}
}

// ofFields returns the verbs for the fields that differ, each verb once. A field without a class
// needs all verbs.
func ofFields(before, after any, classOf func(field string) (Verb, bool)) []Verb {
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	var needed []Verb
	for i := range was.NumField() {
		if equality.Semantic.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			continue
		}
		verb, known := classOf(was.Type().Field(i).Name)
		if !known {
			return All()
		}
		if verb != free && !slices.Contains(needed, verb) {
			needed = append(needed, verb)
		}
	}
	return needed
}

// erase returns how a claim has data disks erased; blank without a claim.
func erase(claim *infrav1.HostClaim) infrav1.EraseMethod {
	if claim == nil {
		return ""
	}
	return claim.Erase
}
