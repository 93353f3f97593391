package rights_test

import (
	"reflect"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
)

// field is a field of a host.
type field struct {
	// spec has nothing but the field.
	spec  infrav1.ElementalHostSpec
	verbs []rights.Verb
}

// fieldsOfHost returns all fields by their names.
func fieldsOfHost() map[string]field {
	claim := &infrav1.HostClaim{ClusterName: "c", MachineName: "m", ID: "1", Phase: infrav1.ClaimHeld}
	return map[string]field{
		"HostID":           {infrav1.ElementalHostSpec{HostID: "1"}, []rights.Verb{rights.Approve}},
		"Identity":         {infrav1.ElementalHostSpec{Identity: &infrav1.HostIdentity{}}, []rights.Verb{rights.Approve}},
		"Lock":             {infrav1.ElementalHostSpec{Lock: &infrav1.HostLock{}}, []rights.Verb{rights.Approve}},
		"RegistrationRef":  {infrav1.ElementalHostSpec{RegistrationRef: &infrav1.LocalReference{Name: "r"}}, []rights.Verb{rights.Approve}},
		"Approval":         {infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}, []rights.Verb{rights.Approve}},
		"PendingReason":    {infrav1.ElementalHostSpec{PendingReason: "Returned"}, []rights.Verb{rights.Approve}},
		"GrantedTo":        {infrav1.ElementalHostSpec{GrantedTo: &infrav1.HostGrantedTo{Name: "h"}}, []rights.Verb{rights.Grant}},
		"GrantedFrom":      {infrav1.ElementalHostSpec{GrantedFrom: &infrav1.HostGrantedFrom{Name: "h"}}, []rights.Verb{rights.Grant}},
		"Fence":            {infrav1.ElementalHostSpec{Fence: &infrav1.HostFence{Reason: "dead"}}, []rights.Verb{rights.Fence}},
		"Claim":            {infrav1.ElementalHostSpec{Claim: claim}, []rights.Verb{rights.Release}},
		"Adoption":         {infrav1.ElementalHostSpec{Adoption: &infrav1.HostAdoption{ClusterName: "c"}}, []rights.Verb{rights.Release}},
		"OSUpgrade":        {infrav1.ElementalHostSpec{OSUpgrade: &infrav1.HostOSUpgrade{ID: "1"}}, []rights.Verb{rights.Install}},
		"Bundle":           {infrav1.ElementalHostSpec{Bundle: &infrav1.HostBundle{}}, []rights.Verb{rights.Install}},
		"NodeUpgrade":      {infrav1.ElementalHostSpec{NodeUpgrade: &infrav1.HostNodeUpgrade{ID: "1"}}, []rights.Verb{rights.Install}},
		"EtcdRestore":      {infrav1.ElementalHostSpec{EtcdRestore: &infrav1.HostEtcdRestore{ID: "1"}}, []rights.Verb{rights.Restore}},
		"ControlPlaneHalt": {infrav1.ElementalHostSpec{ControlPlaneHalt: &infrav1.HostControlPlaneHalt{ID: "1"}}, []rights.Verb{rights.Restore}},
		"LogRequest":       {infrav1.ElementalHostSpec{LogRequest: &infrav1.HostLogRequest{ID: "1"}}, []rights.Verb{rights.Logs}},

		"Cordon":             {infrav1.ElementalHostSpec{Cordon: &infrav1.HostCordon{Reason: "full"}}, nil},
		"Maintenance":        {infrav1.ElementalHostSpec{Maintenance: &infrav1.HostMaintenance{Reason: "fan"}}, nil},
		"MaintenanceEndedAt": {infrav1.ElementalHostSpec{MaintenanceEndedAt: metav1.Unix(1, 0)}, nil},
		"Quarantine":         {infrav1.ElementalHostSpec{Quarantine: &infrav1.HostQuarantine{Reason: "2"}}, nil},
		"Reboot":             {infrav1.ElementalHostSpec{Reboot: &infrav1.HostReboot{ID: "1"}}, nil},
		"CertificateRenewal": {infrav1.ElementalHostSpec{CertificateRenewal: &infrav1.HostCertificateRenewal{ID: "r"}}, nil},
		"Hostname":           {infrav1.ElementalHostSpec{Hostname: "a"}, nil},
	}
}

// A field counts when it is set, when it is removed, and when the host is created with it.
func TestThreat82_FieldsOfAHostNeedTheirVerbs(t *testing.T) {
	for name, field := range fieldsOfHost() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(rights.OfHost(infrav1.ElementalHostSpec{}, field.spec)).To(Equal(field.verbs))
			g.Expect(rights.OfHost(field.spec, infrav1.ElementalHostSpec{})).To(Equal(field.verbs))
			g.Expect(rights.OfHost(field.spec, *field.spec.DeepCopy())).To(BeEmpty())
		})
	}
}

// Whoever adds a field to hosts decides who may change it: until then it needs all verbs, and this
// test fails.
func TestThreat82_NoFieldOfAHostIsForgotten(t *testing.T) {
	known := fieldsOfHost()
	for field := range reflect.TypeFor[infrav1.ElementalHostSpec]().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(known).To(HaveKey(field.Name), "add the field to the test and to a class of package rights")
			g.Expect(len(rights.OfHost(infrav1.ElementalHostSpec{}, known[field.Name].spec))).To(BeNumerically("<", len(rights.All())), "the field has no class")
		})
	}
}

// A claim decides on the disks too.
func TestThreat82_ErasureOfAHostNeedsItsVerb(t *testing.T) {
	g := NewWithT(t)
	claim := &infrav1.HostClaim{ClusterName: "c", MachineName: "m", ID: "1", Phase: infrav1.ClaimHeld}
	erasing := claim.DeepCopy()
	erasing.Erase = infrav1.EraseZero
	both := ConsistOf(rights.Release, rights.Erase)
	g.Expect(rights.OfHost(infrav1.ElementalHostSpec{Claim: claim}, infrav1.ElementalHostSpec{Claim: erasing})).To(both)
	g.Expect(rights.OfHost(infrav1.ElementalHostSpec{Claim: erasing}, infrav1.ElementalHostSpec{})).To(both, "the erasure is gone with the claim")
	releasing := erasing.DeepCopy()
	releasing.Phase = infrav1.ClaimReleasing
	g.Expect(rights.OfHost(infrav1.ElementalHostSpec{Claim: erasing}, infrav1.ElementalHostSpec{Claim: releasing})).To(ConsistOf(rights.Release))
}

func TestThreat82_MachinesNeedTheirVerbs(t *testing.T) {
	for name, tc := range map[string]struct {
		spec  infrav1.ElementalMachineSpec
		verbs []rights.Verb
	}{
		"image":   {infrav1.ElementalMachineSpec{OSImage: "oci:a"}, []rights.Verb{rights.Install}},
		"erasure": {infrav1.ElementalMachineSpec{Release: infrav1.ReleasePolicy{EraseDataDisks: infrav1.EraseZero}}, []rights.Verb{rights.Erase}},
		"hold":    {infrav1.ElementalMachineSpec{Release: infrav1.ReleasePolicy{Policy: infrav1.ReleaseHold}}, nil},
		"host":    {infrav1.ElementalMachineSpec{HostName: "h"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(rights.OfMachine(infrav1.ElementalMachineSpec{}, tc.spec)).To(Equal(tc.verbs))
			g.Expect(rights.OfMachine(tc.spec, infrav1.ElementalMachineSpec{})).To(Equal(tc.verbs))
			g.Expect(rights.OfMachine(tc.spec, tc.spec)).To(BeEmpty())
		})
	}
}

// Whoever may create a restore reads its plan, and may not begin it.
func TestThreat82_ConfirmationsNeedTheirVerb(t *testing.T) {
	planned := infrav1.ElementalEtcdRestoreSpec{
		ClusterName: "c", Source: infrav1.EtcdRestoreSource{Snapshot: &infrav1.EtcdRestoreSnapshot{HostName: "h", ID: "1"}},
	}
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalEtcdRestoreSpec)
		verbs  []rights.Verb
	}{
		"ClusterName":         {func(*infrav1.ElementalEtcdRestoreSpec) {}, nil},
		"Source":              {func(*infrav1.ElementalEtcdRestoreSpec) {}, nil},
		"Confirm":             {func(s *infrav1.ElementalEtcdRestoreSpec) { s.Confirm = "c" }, []rights.Verb{rights.Restore}},
		"ReplaceHealthy":      {func(s *infrav1.ElementalEtcdRestoreSpec) { s.ReplaceHealthy = new(true) }, []rights.Verb{rights.Restore}},
		"RebuildControlPlane": {func(s *infrav1.ElementalEtcdRestoreSpec) { s.RebuildControlPlane = new(true) }, []rights.Verb{rights.Restore}},
		"Request":             {func(s *infrav1.ElementalEtcdRestoreSpec) { s.Request = &infrav1.EtcdRestoreRequest{} }, []rights.Verb{rights.Restore}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			changed := *planned.DeepCopy()
			tc.change(&changed)
			g.Expect(rights.OfRestore(infrav1.ElementalEtcdRestoreSpec{}, changed)).To(Equal(tc.verbs))
			g.Expect(rights.OfRestore(planned, changed)).To(Equal(tc.verbs))
			_, exists := reflect.TypeFor[infrav1.ElementalEtcdRestoreSpec]().FieldByName(name)
			g.Expect(exists).To(BeTrue())
		})
	}
	NewWithT(t).Expect(reflect.TypeFor[infrav1.ElementalEtcdRestoreSpec]().NumField()).To(Equal(6), "add the new field above")
}

func TestEveryVerbIsInARole(t *testing.T) {
	for _, verb := range rights.All() {
		if roles := verb.Roles(); !slices.Contains(roles, "elemental-host-operator") {
			t.Errorf("operators of hosts lack %s: %v", verb, roles)
		}
	}
}
