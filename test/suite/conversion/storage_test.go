package conversion_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

// migrate does what Cluster API's crdmigrator does: it writes each host once, so that it is stored
// in v1beta3, and removes the other version from the CRD's status.
func (r *rig) migrate() {
	r.t.Helper()
	for _, host := range r.all() {
		r.Expect(r.client.Patch(r.t.Context(), &host, client.RawPatch(types.MergePatchType, []byte("{}")))).To(Succeed())
	}
	crd := r.live()
	crd.Status.StoredVersions = []string{newer}
	r.Expect(r.client.Status().Update(r.t.Context(), crd)).To(Succeed())
}

// forget removes what the API server has recorded of owners of fields in v1beta2. crdmigrator
// does that too when the version is not served any more.
func (r *rig) forget() {
	r.t.Helper()
	for _, host := range r.all() {
		host.ManagedFields = slices.DeleteFunc(host.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.APIVersion != newerGroupVersion.String()
		})
		if len(host.ManagedFields) == 0 {
			host.ManagedFields = []metav1.ManagedFieldsEntry{{}} // an empty list would change nothing
		}
		r.Expect(r.client.Update(r.t.Context(), &host)).To(Succeed())
	}
}

// all hosts, of all namespaces.
func (r *rig) all() []ElementalHost {
	r.t.Helper()
	hosts := &ElementalHostList{}
	r.Expect(r.client.List(r.t.Context(), hosts)).To(Succeed())
	r.Expect(hosts.Items).NotTo(BeEmpty())
	return hosts.Items
}

func (r *rig) read(to client.Object, name string) error {
	return r.client.Get(r.t.Context(), r.key(name), to)
}

// testNewerStored is the second step of the policy: v1beta3 is stored, what was stored is migrated,
// then v1beta2 is not served any more, and then it is gone.
func testNewerStored(r *rig) {
	for _, name := range []string{"early", "late", "claimed"} {
		r.createHost(name)
	}
	want := r.request("late")
	r.request("claimed")
	for _, name := range []string{"early", "late"} {
		r.Expect(r.applyAs("git-old", older, name, cordon("rack"))).To(Succeed())
	}
	r.upgrade(newerStored())
	r.t.Run("stored in two versions", func(t *testing.T) { testMixed(r.in(t)) })
	r.t.Run("migrated", func(t *testing.T) { testMigrated(r.in(t)) })
	r.t.Run("claims of v1beta2", func(t *testing.T) { testClaimsOfOlder(r.in(t), want) })
	r.t.Run("v1beta2 ends", func(t *testing.T) { testOlderEnds(r.in(t), want) })
}

// Until each host is written again, some are stored in v1beta2. During an outage of the webhook
// neither version reads all, and no CRD without one of the versions is accepted.
func testMixed(r *rig) {
	r.Expect(r.live().Status.StoredVersions).To(Equal([]string{older, newer}))
	r.Expect(r.apply(newerOnly())).To(MatchError(ContainSubstring("v1beta2 was previously a storage version")))
	r.Expect(r.apply(beforeUpgrade())).To(MatchError(ContainSubstring("v1beta3 was previously a storage version")))
	host := r.old("early")
	patch(r, host, func() { host.Labels["written"] = "since" })
	r.hook.stop()
	r.Expect(r.read(&ElementalHost{}, "early")).To(Succeed())
	r.Expect(r.read(&infrav1.ElementalHost{}, "early")).To(failToConvert())
	r.Expect(r.read(&ElementalHost{}, "late")).To(failToConvert())
	r.Expect(r.read(&infrav1.ElementalHost{}, "late")).To(Succeed())
	r.hook.start()
}

func testMigrated(r *rig) {
	before := map[string]*infrav1.ElementalHost{"early": r.old("early"), "late": r.old("late")}
	r.migrate()
	r.Expect(r.live().Status.StoredVersions).To(Equal([]string{newer}))
	r.Expect(r.apply(beforeUpgrade())).To(MatchError(ContainSubstring("v1beta3 was previously a storage version")), "the way back is to the first step")
	r.hook.stop()
	for name := range before {
		r.Expect(r.read(&ElementalHost{}, name)).To(Succeed())
		r.Expect(r.read(&infrav1.ElementalHost{}, name)).To(failToConvert())
	}
	r.hook.start()
	unchanged := func() {
		r.t.Helper()
		for name, is := range before {
			after := r.old(name)
			after.ResourceVersion, after.ManagedFields = is.ResourceVersion, is.ManagedFields
			r.Expect(after).To(Equal(is))
		}
	}
	unchanged()
	r.upgrade(bothServed())
	unchanged()
	r.upgrade(newerStored())
	r.migrate()
}

// Each write of v1beta2 is converted now, so no annotation outlives its list.
func testClaimsOfOlder(r *rig, want []Reboot) {
	ctx := r.t.Context()
	stale, fresh := r.old("claimed"), r.old("claimed")
	r.Expect(claim.Reserve(ctx, r.client, fresh, cluster)).To(Succeed())
	r.Expect(apierrors.IsConflict(claim.Reserve(ctx, r.client, stale, "other"))).To(BeTrue())
	r.Expect(r.new("claimed").Spec.Reboots).To(Equal(want))

	host := r.old("claimed")
	first := host.Spec.Reboot
	patch(r, host, func() { host.Spec.Reboot = nil })
	r.Expect(host.Annotations).To(Equal(map[string]string{"note": "kept"}))
	patch(r, host, func() { host.Spec.Reboot = first })
	r.Expect(r.new("claimed").Spec.Reboots).To(Equal(want[:1]))
}

func testOlderEnds(r *rig, want []Reboot) {
	// Of two hosts, one is applied in the new version in time.
	r.Expect(r.applyAs("git-old", newer, "early", cordon("rack"))).To(Succeed())
	r.upgrade(olderUnserved())
	host := r.new("late")
	patch(r, host, func() { host.Labels["unserved"] = "" })
	r.Expect(managers(host)).To(ContainElement("git-old in v1beta2"), "a version that is not served is still converted")
	r.forget()
	r.Expect(managers(r.new("late"))).To(HaveEach(HaveSuffix("in v1beta3")))

	r.upgrade(newerOnly())
	r.hook.stop()
	host = r.new("late")
	r.Expect(host.Spec.Reboots).To(Equal(want))
	patch(r, host, func() { host.Labels["alone"] = "" })
	r.Expect(managers(host)).NotTo(BeEmpty())
	for _, name := range []string{"early", "late"} {
		r.Expect(r.applyAs("git-old", newer, name, map[string]any{})).To(Succeed())
	}
	r.Expect(r.new("early").Spec.Cordon).To(BeNil())
	r.Expect(r.new("late").Spec.Cordon).NotTo(BeNil(), "what was applied in v1beta2 has no owner any more")
}
