package conversion_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilconversion "sigs.k8s.io/cluster-api/util/conversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

// testBothServed is the first step of the policy: both versions are served, v1beta2 is stored.
func testBothServed(r *rig) {
	for _, name := range []string{"claimed", "older", "stale", "replaced", "forged", "cached", "plain", "written", "applied", "reported", "down"} {
		r.createHost(name)
	}
	r.t.Run("claims", func(t *testing.T) { testClaims(r.in(t)) })
	r.t.Run("server-side apply", func(t *testing.T) { testApply(r.in(t)) })
	r.t.Run("a client of v1beta2 decides otherwise", func(t *testing.T) { testOlderDecides(r.in(t)) })
	r.t.Run("annotation outlives its list", func(t *testing.T) { testStaleAnnotation(r.in(t)) })
	r.t.Run("forged annotation", func(t *testing.T) { testForgedAnnotation(r.in(t)) })
	r.t.Run("each write is converted", func(t *testing.T) { testEachWriteIsConverted(r.in(t)) })
	r.t.Run("outage", func(t *testing.T) { testOutage(r.in(t)) })
	r.t.Run("downgrade and back", func(t *testing.T) { testDowngrade(r.in(t)) })
}

func testStoredBefore(r *rig, before *infrav1.ElementalHost) {
	host := r.new("read")
	r.Expect(host.Spec.Reboots).To(Equal([]Reboot{{ID: "a", RestoreName: "restore"}}))
	r.Expect(host.ObjectMeta).To(Equal(before.ObjectMeta))
	r.Expect(host.Status).To(Equal(before.Status))
	r.Expect(r.old("read")).To(Equal(before), "something was written")

	patch(r, host, func() { host.Spec.Cordon = &infrav1.HostCordon{Reason: "disk"} })
	after := r.old("read")
	r.Expect(after.Spec.Cordon.Reason).To(Equal("disk"))
	after.Spec.Cordon, after.ResourceVersion, after.Generation, after.ManagedFields = nil, before.ResourceVersion, before.Generation, before.ManagedFields
	r.Expect(after).To(Equal(before))
}

// Managers of v1beta2 claim a host by the code of the product. What v1beta2 lacks stays.
func testClaims(r *rig) {
	ctx := r.t.Context()
	stale, staleNewer := r.old("claimed"), r.new("claimed")
	want := r.request("claimed")
	r.Expect(apierrors.IsConflict(claim.Reserve(ctx, r.client, stale, cluster))).To(BeTrue(), "both versions have one resourceVersion")
	fresh := r.old("claimed")
	r.Expect(fresh.Spec.Reboot).To(Equal(&infrav1.HostReboot{ID: "a", RestoreName: "restore"}))
	r.Expect(fresh.Annotations).To(HaveKeyWithValue(utilconversion.DataAnnotation,
		`{"spec":{"reboots":[{"id":"a","restoreName":"restore"},{"id":"b","reason":"firmware"}]}}`))
	r.Expect(claim.Reserve(ctx, r.client, fresh, cluster)).To(Succeed())
	host := r.new("claimed")
	r.Expect(host.Spec.Claim.ClusterName).To(Equal(cluster))
	r.Expect(host.Spec.Reboots).To(Equal(want))
	r.Expect(host.Annotations).NotTo(HaveKey(utilconversion.DataAnnotation))
	staleNewer.Spec.Claim = &infrav1.HostClaim{ClusterName: "other", Phase: infrav1.ClaimReserved}
	r.Expect(apierrors.IsConflict(r.client.Update(ctx, staleNewer))).To(BeTrue())

	r.report("claimed")
	r.Expect(r.new("claimed").Spec.Reboots).To(Equal(want))
	r.Expect(r.new("claimed").Status.Addresses).To(BeEmpty())
}

// Two managers apply parts of a host, each in its version.
func testApply(r *rig) {
	list := []any{map[string]any{"id": "b", "reason": "firmware"}, map[string]any{"id": "d"}}
	r.Expect(r.client.Create(r.t.Context(), &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "git"}})).To(Succeed())
	r.Expect(r.applyAs("git-old", older, "git", cordon("rack"))).To(Succeed())
	r.Expect(r.applyAs("git-new", newer, "git", map[string]any{"reboots": list})).To(Succeed())
	want := r.new("git").Spec.Reboots
	r.Expect(want).To(HaveLen(2))
	r.Expect(r.applyAs("git-old", older, "git", cordon("power"))).To(Succeed())
	host := r.new("git")
	r.Expect(host.Spec.Cordon.Reason).To(Equal("power"))
	r.Expect(host.Spec.Reboots).To(Equal(want))

	// No conflict: what another manager has applied is gone after the conversion, and the API
	// server looks for conflicts in what is changed or added.
	other := map[string]any{"reboot": map[string]any{"id": "c"}}
	r.Expect(r.applyAs("git-other", older, "git", other)).To(Succeed())
	r.Expect(r.new("git").Spec.Reboots).To(Equal([]Reboot{{ID: "c"}}))
	r.Expect(managers(r.old("git"))).To(Equal([]string{"git-old in v1beta2", "git-other in v1beta2"}))
	r.Expect(r.applyAs("git-old", older, "git", map[string]any{})).To(Succeed())
	r.Expect(r.new("git").Spec.Cordon).To(BeNil())
}

func testOlderDecides(r *rig) {
	r.request("older")
	host := r.old("older")
	patch(r, host, func() { host.Spec.Reboot = &infrav1.HostReboot{ID: "c"} })
	r.Expect(r.new("older").Spec.Reboots).To(Equal([]Reboot{{ID: "c"}}))

	r.request("replaced")
	host = r.old("replaced")
	host.Annotations = nil
	r.Expect(r.client.Update(r.t.Context(), host)).To(Succeed())
	r.Expect(r.new("replaced").Spec.Reboots).To(Equal([]Reboot{{ID: "a", RestoreName: "restore"}}), "nobody else has the list")
}

// Nothing converts what a client of v1beta2 writes while v1beta2 is stored. So the annotation
// stays, and counts again when the value that it belongs to returns.
func testStaleAnnotation(r *rig) {
	want := r.request("stale")
	host := r.old("stale")
	first := host.Spec.Reboot
	patch(r, host, func() { host.Spec.Reboot = nil })
	r.Expect(r.new("stale").Spec.Reboots).To(BeEmpty())
	patch(r, host, func() { host.Spec.Reboot = first })
	r.Expect(r.new("stale").Spec.Reboots).To(Equal(want))
}

// Who may write annotations writes what no schema has checked.
func testForgedAnnotation(r *rig) {
	host := r.old("forged")
	forged := ElementalHost{Spec: ElementalHostSpec{Reboots: []Reboot{{ID: "a", RestoreName: "restore", Reason: strings.Repeat("x", 300)}}}}
	patch(r, host, func() { r.Expect(utilconversion.MarshalData(&forged, host)).To(Succeed()) })
	changed := r.new("forged")
	r.Expect(changed.Spec.Reboots).To(Equal(forged.Spec.Reboots))
	changed.Spec.Reboots = append(changed.Spec.Reboots, Reboot{ID: "b", Reason: strings.Repeat("x", 300)})
	r.Expect(r.client.Update(r.t.Context(), changed)).To(MatchError(ContainSubstring("spec.reboots[1].reason")))
}

// The API server keeps a cache of each version that it serves, so it converts what nobody reads.
func testEachWriteIsConverted(r *rig) {
	before := r.hook.calls.Load()
	r.report("cached")
	r.Eventually(r.hook.calls.Load).Should(BeNumerically(">", before))
}

// The components of the version before are applied, and then the newer ones again.
func testDowngrade(r *rig) {
	want := r.request("down")
	r.Expect(r.applyAs("git-old", older, "down", cordon("rack"))).To(Succeed())
	r.upgrade(beforeUpgrade())
	host := r.old("down")
	r.Expect(host.Spec.Reboot.ID).To(Equal("a"))
	r.Expect(managers(host)).To(ContainElement("git-old in v1beta2"))
	r.Expect(claim.Reserve(r.t.Context(), r.client, host, cluster)).To(Succeed())
	r.Expect(managers(r.old("down"))).To(BeEmpty(), "one of them has written in a version that is unknown")
	r.upgrade(bothServed())
	r.Expect(r.new("down").Spec.Reboots).To(Equal(want))
	r.Expect(r.new("down").Spec.Claim.ClusterName).To(Equal(cluster))
}

// report changes a status as the agent API does.
func (r *rig) report(name string) {
	r.t.Helper()
	host := r.old(name)
	before := host.DeepCopy()
	host.Status.Addresses = nil
	r.Expect(r.client.Status().Patch(r.t.Context(), host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
}
